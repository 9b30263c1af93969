local base = preset "ultraquant_4bit" { key = { scale_search = true } }
return base { key = { rule = "mxfp4" } }
