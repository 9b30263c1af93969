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

/* Every file that a command writes: under a temporary name beside it, and renamed, so that a file under its final name is
 * complete and an old one stays until the new one is. 1, or 0 with *error malloc'd. */
int paths_write(const char *path, const void *data, size_t bytes, char **error);

/* Asked before the work whose result is to be written: makes the folders that are not there, and tries whether a file can be
 * made, in a folder or under that name. 1, or 0 after a message. */
int paths_make_folder(const char *path);
int paths_make_ready(const char *path);

#endif
