/* SPDX-License-Identifier: Apache-2.0 */
/* Which assembler is found, and what it is called in cache keys. Nothing is loaded or started. */
#include "rt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void put_file(const char *folder, const char *name, size_t bytes, int mode)
{
    char *path = rt_path(folder, name), *zeros = calloc(1, bytes);
    rt_write(path, zeros, bytes);
    chmod(path, (mode_t)mode);
    free(path);
    free(zeros);
}

static struct assembler find(const char *libraries, const char *path)
{
    struct assembler a;
    libraries ? setenv("LD_LIBRARY_PATH", libraries, 1) : unsetenv("LD_LIBRARY_PATH");
    setenv("PATH", path ? path : "/nowhere", 1);
    int found = assembler_find(&a);
    assert_int_equal(found, a.kind != ASSEMBLER_NONE);
    return a;
}

static void library_path_comes_first_and_13_before_12(void **state)
{
    (void)state;
    char *folder = rt_folder(), lists[600];
    put_file(folder, "libnvJitLink.so.12", 77, 0644);
    put_file(folder, "libnvJitLink.so.13", 99, 0644);
    snprintf(lists, sizeof lists, "/nowhere::%s", folder);
    struct assembler a = find(lists, NULL);
    assert_int_equal(a.kind, ASSEMBLER_NVJITLINK);
    assert_int_equal(strncmp(a.path, folder, strlen(folder)), 0);
    assert_non_null(strstr(a.path, ".so.13"));
    assert_int_equal(strncmp(a.name, "nvJitLink ", 10), 0);
    assert_string_equal(a.name + strlen(a.name) - 3, " 99");
    put_file(folder, "libnvJitLink.so.13", 100,
             0644); /* another build at the same path has another name */
    assert_string_equal(find(lists, NULL).name + strlen(a.name) - 2, "100");
    rt_remove(folder);
}

static void links_are_named_by_what_they_lead_to(void **state)
{
    (void)state;
    char *folder = rt_folder(), *link = rt_path(folder, "libnvJitLink.so.13");
    put_file(folder, "libnvJitLink.so.13.2.51", 5, 0644);
    assert_int_equal(symlink("libnvJitLink.so.13.2.51", link), 0);
    assert_string_equal(find(folder, NULL).name, "nvJitLink 13.2.51 5");
    assert_string_equal(find(folder, NULL).path, link);
    free(link);
    rt_remove(folder);
}

static void things_that_are_no_files_are_passed_over(void **state)
{
    (void)state;
    char *folder = rt_folder(), *dir = rt_path(folder, "libnvJitLink.so.13"),
         *broken = rt_path(folder, "libnvJitLink.so.12");
    assert_int_equal(mkdir(dir, 0700), 0);
    assert_int_equal(symlink("/nowhere/at/all", broken), 0);
    assert_null(strstr(find(folder, NULL).path, folder));
    free(dir);
    free(broken);
    rt_remove(folder);
}

/* On a machine with nvJitLink that one is found first; then only the refusal can be seen. */
static void ptxas_must_be_executable(void **state)
{
    (void)state;
    char *folder = rt_folder();
    put_file(folder, "ptxas", 10, 0644);
    assert_null(strstr(find(NULL, folder).path, folder));
    put_file(folder, "ptxas", 10, 0755);
    struct assembler a = find(NULL, folder);
    if (a.kind == ASSEMBLER_PTXAS)
        assert_non_null(strstr(a.path, folder));
    rt_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(library_path_comes_first_and_13_before_12),
        cmocka_unit_test(links_are_named_by_what_they_lead_to),
        cmocka_unit_test(things_that_are_no_files_are_passed_over),
        cmocka_unit_test(ptxas_must_be_executable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
