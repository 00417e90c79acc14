#include <luthier/registers.h>

int vcc() { return luthier::VCC; }
