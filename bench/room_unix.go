//go:build linux || darwin

package bench

import "syscall"

// freeBytes is what a folder's disk has left for us.
func freeBytes(dir string) (free int64, known bool) {
	var stat syscall.Statfs_t
	if err := syscall.Statfs(dir, &stat); err != nil {
		return 0, false
	}
	return int64(stat.Bavail * uint64(stat.Bsize)), true
}
