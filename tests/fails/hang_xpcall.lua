local function f() while true do xpcall(f, f) end end f()
