-- SPDX-License-Identifier: Apache-2.0
-- The bytes of ultraquant_4bit, with queries rounded to FP8 before they meet the keys: what vLLM's kernels do.
-- `kvkiln check` compares outputs in this form; serving wants ultraquant_4bit, whose query stays 16 bits wide.
return preset "ultraquant_4bit" {
  query = "e4m3",
}
