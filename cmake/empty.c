/* SPDX-License-Identifier: Apache-2.0 */
typedef int empty_translation_unit; /* an archive needs a member before its sources exist */
