/* SPDX-License-Identifier: Apache-2.0 */
/* paths.h - where the executable's companions lie, in a build
 * tree (out/bin/kvkiln) and installed (bin/kvkiln). */
#ifndef KVKILN_CLI_PATHS_H
#define KVKILN_CLI_PATHS_H

/* Colon-separated spec folders, malloc'd: --specs,
 * $KVKILN_SPECS, then those beside the executable that exist. */
char *paths_specs(const char *option);

/* Folder of the sample cases, malloc'd, or NULL. */
char *paths_data(const char *option);

#endif
