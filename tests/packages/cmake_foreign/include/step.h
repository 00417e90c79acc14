#define STEP 5
