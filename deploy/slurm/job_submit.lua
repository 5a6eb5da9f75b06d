-- JobSubmitPlugins=lua, an example: jobs of several whole nodes in these
-- partitions run in the order that the network favours, unless they say
-- otherwise by a --comment of their own.

local PARTITIONS = { mpi = true }
local MAP = "/shared/cloudcoll/maps/%j.json"

function slurm_job_submit(job, partitions, uid)
   local nodes = job.min_nodes
   local several = nodes ~= slurm.NO_VAL and nodes > 1
   if PARTITIONS[job.partition] and several and job.comment == nil then
      job.comment = "cloudcoll"
   end
   -- Slurm lets a plugin set the environment of batch jobs alone: for salloc and
   -- srun it is the user who sets CLOUDCOLL_MAP.
   if job.comment == "cloudcoll" and job.script ~= nil then
      job.environment.CLOUDCOLL_MAP = MAP
   end
   return slurm.SUCCESS
end

function slurm_job_modify(job, record, partitions, uid)
   return slurm.SUCCESS
end
