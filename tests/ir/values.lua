-- SPDX-License-Identifier: Apache-2.0
-- Both sides rotated, and their norms corrected when read: the most that a step and the end of a row do.
return preset { key = codebook { bits = 4 }, value = codebook { bits = 4 } }
