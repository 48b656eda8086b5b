package pgdev

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const passwordFile = "postrider.password" // in the data directory, so that copies of a cluster have it

// createCluster creates the cluster beside its final path and renames it: a run killed meanwhile leaves no cluster. It
// unpacks the archive of a prepared one, because a run of all tests starts more than forty servers: initdb takes 0.5 s
// of a CPU, the archive 0.07 s, a copy of its 970 files from a disk 0.4 s. The first run on a machine prepares it.
func (s *Server) createCluster(ctx context.Context) error {
	sum := sha256.Sum256([]byte(s.bin.dir + "\x00" + s.owner.name + "\x00" + s.opts.Content))
	prepared := filepath.Join(s.opts.cache, fmt.Sprintf("prepared-%s-%x.tar", s.bin.version, sum[:4]))
	fresh := s.file("data.new")
	archive, err := os.Open(prepared)
	if errors.Is(err, fs.ErrNotExist) {
		if err := s.prepare(ctx, fresh, prepared); err != nil {
			return err
		}
		archive, err = os.Open(prepared)
	}
	if err != nil {
		return err
	}
	defer archive.Close()
	unpack := s.owner.command(ctx, "tar", "-xf", "-", "-C", fresh)
	unpack.Stdin = archive
	if err := errors.Join(s.emptyDir(fresh), output(unpack)); err != nil {
		return err
	}
	return os.Rename(fresh, s.file("data"))
}

// prepare writes an archive: of a cluster that initdb creates in dir, or of another server's that it fills.
func (s *Server) prepare(ctx context.Context, dir, path string) error {
	if s.opts.Content == "" {
		if err := s.initdb(ctx, dir); err != nil {
			return err
		}
		return s.pack(ctx, dir, path)
	}
	filled, err := Start(ctx, Options{Settings: s.opts.Settings, Log: s.opts.Log, cache: s.opts.cache})
	if err != nil {
		return err
	}
	if err := s.opts.Fill(ctx, filled); err != nil {
		return errors.Join(err, filled.Stop(ctx))
	}
	filled.proc.stop(ctx)
	s.removeOld()
	return errors.Join(s.pack(ctx, filled.file("data"), path), filled.Stop(ctx))
}

// keptArchives is how many archives of 40 to 80 MB stay in the cache: the contents of a few branches and versions.
const keptArchives = 6

// removeOld removes the archives that were written before the newest ones, with those that were not finished.
func (s *Server) removeOld() {
	archives, _ := filepath.Glob(filepath.Join(s.opts.cache, "prepared-*"))
	written := func(path string) time.Time {
		info, err := os.Stat(path)
		if err != nil {
			return time.Time{}
		}
		return info.ModTime()
	}
	slices.SortFunc(archives, func(a, b string) int { return written(b).Compare(written(a)) })
	for _, path := range archives[min(keptArchives, len(archives)):] {
		_ = os.Remove(path)
	}
}

// pack writes the archive of a directory beside its final path, because another process may pack at the same time.
func (s *Server) pack(ctx context.Context, dir, path string) error {
	archive, err := os.OpenFile(path+rand.Text(), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer os.Remove(archive.Name())
	pack := s.owner.command(ctx, "tar", "-cf", "-", "-C", dir, ".")
	pack.Stdout = archive
	if err := errors.Join(output(pack), archive.Close()); err != nil {
		return err
	}
	return os.Rename(archive.Name(), path)
}

// initdb creates a cluster. Text is ordered by code point, the same on every system. From version 17 on, letter case is
// Unicode's; the C locale of older versions knows the case of ASCII letters only.
func (s *Server) initdb(ctx context.Context, dir string) error {
	password, hash := rand.Text(), dir+".password"
	defer os.Remove(hash)
	if err := errors.Join(s.emptyDir(dir), s.write(hash, scram(password))); err != nil {
		return err
	}
	args := []string{
		"--pgdata=" + dir, "--username=" + superuser, "--auth=scram-sha-256", "--pwfile=" + hash,
		"--encoding=UTF8", "--locale=C", "--no-instructions",
	}
	if s.bin.major >= 17 {
		args = append(args, "--locale-provider=builtin", "--builtin-locale=C.UTF-8")
	}
	if err := output(s.owner.command(ctx, filepath.Join(s.bin.dir, "initdb"), args...)); err != nil {
		return err
	}
	return s.write(filepath.Join(dir, passwordFile), password)
}

// emptyDir creates or empties a directory that only the owner can enter.
func (s *Server) emptyDir(dir string) error {
	return errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700), s.owner.own(dir))
}

// write writes a file that only the owner can read.
func (s *Server) write(path, text string) error {
	return errors.Join(os.WriteFile(path, []byte(text), 0o600), s.owner.own(path))
}

// output runs a program. The error of a failed one ends with what it printed.
func output(cmd *exec.Cmd) error {
	var printed bytes.Buffer
	if cmd.Stdout == nil {
		cmd.Stdout = &printed
	}
	cmd.Stderr = &printed
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd.Path, err, tail(printed.String()))
	}
	return nil
}

// scram is a password as PostgreSQL stores it, hashed once instead of 4096 times. More rounds slow down guesses of weak
// passwords, not of 130 random bits. Clients repeat them for every connection, and tests open many thousands.
func scram(password string) string {
	salt := []byte(rand.Text())
	salted, _ := pbkdf2.Key(sha256.New, password, salt, 1, sha256.Size)
	key := func(name string) []byte {
		mac := hmac.New(sha256.New, salted)
		mac.Write([]byte(name))
		return mac.Sum(nil)
	}
	text := base64.StdEncoding.EncodeToString
	stored := sha256.Sum256(key("Client Key"))
	return fmt.Sprintf("SCRAM-SHA-256$1:%s$%s:%s", text(salt), text(stored[:]), text(key("Server Key")))
}

// The path of a Unix socket has at most 107 bytes, which temporary directories of macOS exceed.
const defaultConfig = `# Written by postrider at every start. ALTER SYSTEM (postgresql.auto.conf) overrides it.
listen_addresses = '127.0.0.1'
port = %d
unix_socket_directories = ''
max_connections = 200
shared_buffers = '256MB'
max_wal_size = '4GB'
timezone = 'UTC'
log_timezone = 'UTC'
log_checkpoints = off
`

// The data may be in memory, and checkpoints without fsync are cheap: little WAL is kept.
const volatileConfig = `fsync = off
synchronous_commit = off
full_page_writes = off
max_wal_size = '256MB'
`

// config is postgresql.conf. Later lines override earlier ones.
func config(opts Options, port int) string {
	text := fmt.Sprintf(defaultConfig, port)
	if !opts.Durable {
		text += volatileConfig
	}
	for name, value := range opts.Settings {
		text += fmt.Sprintf("%s = '%s'\n", name, strings.NewReplacer(`'`, `''`, `\`, `\\`).Replace(value))
	}
	return text
}
