package pgdev

import "syscall"

// dieWithParent has the kernel send the child a SIGINT, to PostgreSQL a fast shutdown, when this process ends in
// whatever way, SIGKILL included. Go sets it after the change of user, which would clear it.
func dieWithParent(attributes *syscall.SysProcAttr) { attributes.Pdeathsig = syscall.SIGINT }

// kernelGuards: dieWithParent suffices.
const kernelGuards = true

const (
	shm        = "/dev/shm"
	tmpfsMagic = 0x01021994 // TMPFS_MAGIC of statfs(2)
	noExec     = 0x8        // ST_NOEXEC of statvfs(3)
	// roomInMemory is what must be free: a cluster has 40 MB, a clone of the template 10, the WAL up to smallWAL.
	// Containers that keep Docker's default of 64 MB fall through to the disk.
	roomInMemory = 2 << 30
)

// memoryRoot is a folder in memory with room for the clusters of tests, "" where there is none. On a virtual disk,
// making the files of a cluster (initdb) took 1.3 s instead of 0.5, and copying its 40 MB 0.8 s instead of 0.05.
func memoryRoot() string {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(shm, &fs); err != nil || fs.Type != tmpfsMagic || fs.Bavail*uint64(fs.Bsize) < roomInMemory {
		return ""
	}
	return shm
}

// runsPrograms is false of a folder that is mounted noexec, as containers have /dev/shm.
func runsPrograms(dir string) bool {
	var fs syscall.Statfs_t
	return syscall.Statfs(dir, &fs) == nil && fs.Flags&noExec == 0
}
