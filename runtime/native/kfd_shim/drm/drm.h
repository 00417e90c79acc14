// kfd_ioctl.h includes the header of graphics drivers, which distributions ship apart, for these alone.
#pragma once

#include <linux/types.h>
