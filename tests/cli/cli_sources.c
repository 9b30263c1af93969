/* SPDX-License-Identifier: Apache-2.0 */
/* cli_sources.c - the parts of the command line that the suites of this folder test. */
#include "../../cli/check_store.c"
#include "../../cli/cli.c"
#include "../../cli/compare.c"
#include "../../cli/encode.c"
#include "../../cli/number.c"
#include "../../cli/oracle.c"
#include "../../cli/safetensors.c"
#include "../../cli/sample.c"
#include "../../cli/slots.c"
#include "../../cli/slots_native.c"
