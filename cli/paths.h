/* SPDX-License-Identifier: Apache-2.0 */
/* paths.h - where the executable's companions lie, in a build
 * tree (out/bin/kvkiln) and installed (bin/kvkiln). */
#ifndef KVKILN_CLI_PATHS_H
#define KVKILN_CLI_PATHS_H

#include <stddef.h>

/* Colon-separated spec folders, malloc'd: --specs, $KVKILN_SPECS, then those beside the executable that exist. Ends the
 * process where --specs names no folder, so that a command asks before it works. */
char *paths_specs(const char *option);

/* Folder of the sample cases, malloc'd, or NULL. */
char *paths_data(const char *option);

/* Writes a file under a temporary name and renames it: a file under its final name is complete. 1,
 * or 0 with *error malloc'd. */
int paths_write(const char *path, const void *data, size_t bytes, char **error);

/* mkdir -p of a folder, or of the one a file is to lie in: 0 with errno set. */
int paths_make_dirs(const char *path);
int paths_make_parent(const char *path);

#endif
