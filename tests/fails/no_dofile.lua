dofile "x.lua"
