return preset { key = codebook { bits = 4 }, value = affine { bits = 4 }, layouts = (function() local t = {} for i = 1, 1e5 do t[i] = "aos" end return t end)() }
