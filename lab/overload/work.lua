-- For Apache in lab/overload.toml: a request works before its file is sent. WORK_TIME is "10ms" or "200us";
-- WORK_KIND is "sleep", or "spin" for CPU time (os.clock counts the process, which has one worker).
local amount, unit = os.getenv("WORK_TIME"):match("^(%d+)(%a+)$")
local seconds = tonumber(amount) / (unit == "us" and 1e6 or 1e3)
local spins = os.getenv("WORK_KIND") == "spin"

function work(r)
    if spins then
        local until_s = os.clock() + seconds
        while os.clock() < until_s do end
    else
        r.usleep(seconds * 1e6)
    end
    return apache2.DECLINED
end
