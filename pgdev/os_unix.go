//go:build unix

package pgdev

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// identity is the user the server runs as. PostgreSQL refuses to run as root, so root's servers run as another.
type identity struct {
	name     string
	uid, gid uint32
	other    bool // not the user of this process
}

// unprivileged is the current user, or for root the user postgres where a package made one, else nobody.
func unprivileged() (identity, error) {
	if os.Geteuid() != 0 {
		return identity{uid: uint32(os.Geteuid()), gid: uint32(os.Getegid())}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
		if uidErr == nil && gidErr == nil {
			return identity{name: name, uid: uint32(uid), gid: uint32(gid), other: true}, nil
		}
	}
	return identity{},
		errors.New("pgdev: PostgreSQL refuses to run as root, and there is no user postgres or nobody to run it as: " +
			"start postrider as an ordinary user")
}

// command is a server program run as that user, in a process group of its own: Ctrl-C in a terminal goes to postrider
// alone, which then stops the server in order.
func (i identity) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = "/" // the current folder may be closed to that user
	cmd.Env = environment(os.Environ())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if i.other {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: i.uid, Gid: i.gid}
	}
	dieWithParent(cmd.SysProcAttr)
	return cmd
}

// environment drops what would change a server behind our back (PGDATA, PGPORT, locales) and keeps messages in English,
// because diagnose reads them.
func environment(inherited []string) []string {
	kept := []string{"LC_ALL=C"}
	for _, pair := range inherited {
		name, _, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(name, "PG") && !strings.HasPrefix(name, "LC_") && !strings.HasPrefix(name, "LANG") {
			kept = append(kept, pair)
		}
	}
	return kept
}

// own gives a file of ours to that user.
func (i identity) own(path string) error {
	if !i.other {
		return nil
	}
	if err := os.Chown(path, int(i.uid), int(i.gid)); err != nil {
		return fmt.Errorf("pgdev: give %s to %s: %w", path, i.name, err)
	}
	return nil
}

// mkdir makes a folder that only that user enters, as PostgreSQL demands of its data.
func (i identity) mkdir(path string) error {
	if err := os.Mkdir(path, 0o700); err != nil {
		return err
	}
	return i.own(path)
}

// letThrough opens a private folder of ours just enough for that user to reach what is his inside.
func (i identity) letThrough(path string) error {
	if !i.other {
		return nil
	}
	if err := os.Chmod(path, 0o711); err != nil {
		return fmt.Errorf("pgdev: open %s to %s: %w", path, i.name, err)
	}
	return nil
}

// closedParent is the outermost folder on the way to path, path included, that the user may not enter; "" if all are
// open.
func (i identity) closedParent(path string) string {
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		path = resolved
	}
	closed := ""
	for dir := path; ; dir = filepath.Dir(dir) {
		if info, err := os.Stat(dir); err == nil && info.IsDir() && !i.enters(info) {
			closed = dir
		}
		if dir == filepath.Dir(dir) {
			return closed
		}
	}
}

// enters reads the mode bits that apply to the user: the first of owner, group and others that fits, as the kernel
// does.
func (i identity) enters(info os.FileInfo) bool {
	mode := info.Mode().Perm()
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case ok && stat.Uid == i.uid:
		return mode&0o100 != 0
	case ok && stat.Gid == i.gid:
		return mode&0o010 != 0
	}
	return mode&0o001 != 0
}

// tempRoots are the folders that may hold temporary data, best first: memory for data that need not last, then the
// system's temporary folder, then /tmp where that one lies in a home closed to the user.
func (i identity) tempRoots(durable bool) []string {
	roots := []string{os.TempDir(), "/tmp"}
	if memory := memoryRoot(); memory != "" && !durable {
		roots = append([]string{memory}, roots...)
	}
	return slices.DeleteFunc(roots, func(root string) bool { return i.closedParent(root) != "" })
}

// cacheDir is where downloaded programs stay, "" where there is no such place. Root's programs are run by another user,
// who must be able to read them: not in root's home.
func (i identity) cacheDir() string {
	if i.other {
		return "/var/cache/postrider"
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(cache, "postrider")
}

var errLocked = errors.New("locked")

// tryLock takes the lock of a folder or returns errLocked.
func tryLock(dir string) (*os.File, error) {
	lock, err := os.OpenFile(lockFile(dir), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := flock(lock); err != nil {
		lock.Close()
		return nil, err
	}
	return lock, nil
}

func flock(file *os.File) error {
	err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return errLocked
	}
	return err
}

// guardian ends a child when this process ends in whatever way, where the kernel does not: a shell that waits for a
// line on a pipe whose other end only this process holds. The end of the pipe without a line is the end of this
// process.
type guardian struct {
	pipe *os.File
	cmd  *exec.Cmd
}

func guard(pid int) (*guardian, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer read.Close()
	cmd := exec.Command("/bin/sh", "-c", `read -r line || kill -INT "$1"`, "sh", strconv.Itoa(pid))
	cmd.Stdin = read
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // out of the way of Ctrl-C, which would end the guard first
	if err := cmd.Start(); err != nil {
		write.Close()
		return nil, err
	}
	return &guardian{write, cmd}, nil
}

// release sends the guardian away; the child may live on.
func (g *guardian) release() {
	_, _ = g.pipe.WriteString("done\n")
	_ = g.pipe.Close()
	_ = g.cmd.Wait()
}
