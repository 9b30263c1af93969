coroutine.wrap(function() end)()
