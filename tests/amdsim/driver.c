/* SPDX-License-Identifier: Apache-2.0 */
/*
** driver.c - the HIP driver, but with the GPU nodes where the test says: linked before the library
** that has the other.
*/
#include <stdlib.h>

static const char *topology(void)
{
    const char *folder = getenv("AMDSIM_TOPOLOGY");
    return folder ? folder : "/nowhere";
}

#define HIP_TOPOLOGY_FOLDER topology()
#include "../../runtime/driver_hip.c"
