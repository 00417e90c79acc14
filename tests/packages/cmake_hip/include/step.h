#pragma once
#ifndef STEP
#define STEP 1
#endif
