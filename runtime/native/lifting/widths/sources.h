// All of lifting's data flow as one translation unit, for one width of its sets (../units.h).
#include "../bindings.cpp"
#include "../effects.cpp"
#include "../lane_flow.cpp"
#include "../lane_masks.cpp"
#include "../liveness.cpp"
#include "../mask_operations.cpp"
#include "../segments.cpp"
#include "../written.cpp"
