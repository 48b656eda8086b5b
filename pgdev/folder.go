package pgdev

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// tempPrefix starts the name of every temporary folder, so that sweep knows its own.
const tempPrefix = "postrider-pg-"

// lockDeadline is how long a kept folder may stay locked: the server of a run that was killed a moment ago still writes
// its last checkpoint.
const lockDeadline = 10 * time.Second

// folder is where one server lives: data/ (the cluster), password, postgres.log and lock. The lock is held by this
// process and, inherited, by every process of the server: while any of them lives, no other run uses the folder and
// none sweeps it. A process id in a file could not say that; ids are used again.
type folder struct {
	path      string
	temporary bool
	password  string
	lock      *os.File
}

func (f *folder) data() string         { return filepath.Join(f.path, "data") }
func (f *folder) logFile() string      { return filepath.Join(f.path, "postgres.log") }
func (f *folder) passwordFile() string { return filepath.Join(f.path, "password") }
func lockFile(dir string) string       { return filepath.Join(dir, "lock") }

// openFolder makes or reuses the folder and locks it. An empty path means a temporary one, below the first of roots
// that takes it.
func openFolder(ctx context.Context, path string, roots []string, owner identity) (*folder, error) {
	f := &folder{path: path, temporary: path == ""}
	var err error
	if f.temporary {
		err = f.makeTemporary(roots, owner)
	} else {
		err = f.makeKept(owner)
	}
	if err != nil {
		return nil, err
	}
	if f.lock, err = acquire(ctx, f.path, lockDeadline); errors.Is(err, errLocked) {
		return nil, fmt.Errorf("pgdev: the server of another postrider runs in %s: stop it or choose another folder: %w",
			f.path, err)
	} else if err != nil {
		return nil, fmt.Errorf("pgdev: data folder: %w", err)
	}
	if err := f.loadPassword(owner); err != nil {
		return nil, errors.Join(err, f.close())
	}
	return f, nil
}

func (f *folder) makeTemporary(roots []string, owner identity) error {
	err := fmt.Errorf("the user %s may enter none", owner.name)
	for _, root := range roots {
		if f.path, err = os.MkdirTemp(root, tempPrefix); err == nil {
			return owner.letThrough(f.path)
		}
	}
	return fmt.Errorf("pgdev: make temporary folder: %w", err)
}

func (f *folder) makeKept(owner identity) (err error) {
	if f.path, err = filepath.Abs(f.path); err != nil {
		return fmt.Errorf("pgdev: data folder: %w", err)
	}
	if err := os.MkdirAll(f.path, 0o755); err != nil {
		return fmt.Errorf("pgdev: make data folder: %w", err)
	}
	if closed := owner.closedParent(f.path); closed != "" {
		return fmt.Errorf("pgdev: PostgreSQL refuses to run as root, and the user %s it runs as instead may not enter %s: "+
			"choose a folder outside it, such as /var/lib/postrider, or start postrider as an ordinary user", owner.name, closed)
	}
	return nil
}

// acquire waits up to limit for the lock of a folder; after that the error is errLocked.
func acquire(ctx context.Context, dir string, limit time.Duration) (*os.File, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		lock, err := tryLock(dir)
		if err == nil {
			return lock, nil
		}
		if !errors.Is(err, errLocked) || !pause(ctx, 10*poll) {
			return nil, fmt.Errorf("lock %s: %w", dir, err)
		}
	}
}

// major is the major version that made the folder's cluster; 0 where there is none yet.
func (f *folder) major() (int, error) {
	raw, err := os.ReadFile(filepath.Join(f.data(), "PG_VERSION"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("pgdev: read version of the data folder: %w", err)
	}
	major, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil {
		return 0, fmt.Errorf("pgdev: read version of %s: %w", f.data(), err)
	}
	return major, nil
}

// loadPassword reads the superuser's password, or draws one (130 bits) for a cluster that is still to be made.
func (f *folder) loadPassword(owner identity) error {
	raw, err := os.ReadFile(f.passwordFile())
	if err == nil {
		f.password = strings.TrimSpace(string(raw))
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("pgdev: read password: %w", err)
	}
	if major, err := f.major(); err != nil || major != 0 {
		return errors.Join(fmt.Errorf("pgdev: %s holds a cluster but no password file: choose another folder", f.path), err)
	}
	f.password = rand.Text()
	if err := os.WriteFile(f.passwordFile(), []byte(f.password+"\n"), 0o600); err != nil {
		return fmt.Errorf("pgdev: write password: %w", err)
	}
	return owner.own(f.passwordFile()) // initdb reads it as that user
}

// close gives up the lock, and removes what is temporary first, while nobody else can take it.
func (f *folder) close() error {
	var err error
	if f.temporary {
		err = removeAll(f.path)
	}
	return errors.Join(err, f.lock.Close())
}

// removeAll tries for a while, because sessions of a killed server may still write as they leave.
func removeAll(dir string) error {
	ctx, cancel := context.WithTimeout(context.Background(), quitDeadline)
	defer cancel()
	for {
		err := os.RemoveAll(dir)
		if err == nil {
			return nil
		}
		if !pause(ctx, 10*poll) {
			return fmt.Errorf("pgdev: remove temporary data: %w", err)
		}
	}
}

// sweep removes the temporary folders that killed runs left in root. A folder whose lock is free has neither owner nor
// server. Failures are the next sweep's business.
func sweep(root string) {
	found, _ := filepath.Glob(filepath.Join(root, tempPrefix+"*"))
	for _, dir := range found {
		if abandoned(dir, time.Now()) {
			_ = os.RemoveAll(dir)
		}
	}
}

// abandoned leaves folders younger than a minute alone: one may be between its making and its locking.
func abandoned(dir string, now time.Time) bool {
	info, err := os.Lstat(dir)
	if err != nil || !info.IsDir() || now.Sub(info.ModTime()) < time.Minute {
		return false
	}
	lock, err := tryLock(dir)
	if err != nil {
		return false
	}
	lock.Close()
	return true
}
