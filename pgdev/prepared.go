package pgdev

import (
	"context"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// A prepared cluster is what initdb makes, once per machine and PostgreSQL, for temporary servers to copy: a run of all
// tests starts more than forty. initdb takes 0.5 s of a CPU; a copy of its 39 MB with a password of its own takes 0.1
// s.
const preparedPrefix = "cluster-"

// preparedPath is where the prepared cluster of these programs is or would be, "" where there is no place for it. The
// programs' folder and the arguments are part of the name: other builds, and other versions of this package, make
// clusters that differ.
func preparedPath(owner identity, bin installation) string {
	cache := owner.cacheDir()
	if cache == "" {
		return ""
	}
	maker := append([]string{bin.dir, owner.name}, clusterArgs(bin.version)...)
	sum := sha256.Sum256([]byte(strings.Join(maker, "\x00")))
	return filepath.Join(cache, fmt.Sprintf("%s%s-%x", preparedPrefix, bin.version, sum[:4]))
}

// prepare makes the prepared cluster if it is missing, and removes those of other releases of the same major version.
// One process at a time does so; it appears whole or not at all. This initdb syncs what it wrote: nobody would think of
// a cache that a power cut has spoilt.
func prepare(ctx context.Context, owner identity, bin installation) error {
	path := preparedPath(owner, bin)
	if path == "" || isFolder(path) {
		return nil
	}
	cache := filepath.Dir(path)
	if err := errors.Join(os.MkdirAll(cache, 0o755), owner.letThrough(cache)); err != nil {
		return fmt.Errorf("pgdev: make cache folder: %w", err)
	}
	lock, err := acquire(ctx, cache, installDeadline)
	if err != nil {
		return fmt.Errorf("pgdev: prepare a cluster: %w", err)
	}
	defer lock.Close()
	if isFolder(path) {
		return nil
	}
	old, _ := filepath.Glob(filepath.Join(cache, fmt.Sprintf("%s%d.*", preparedPrefix, bin.version.major)))
	for _, dir := range old {
		aside := dir + ".old" // first, so that whoever copies it just now fails, and does not take what is left for all
		_ = os.Rename(dir, aside)
		_ = os.RemoveAll(aside)
	}
	return makePrepared(ctx, owner, bin, path)
}

func makePrepared(ctx context.Context, owner identity, bin installation, path string) error {
	fresh := path + ".new"
	password, err := passwordNobodyKnows(owner, filepath.Dir(path))
	if err != nil {
		return err
	}
	defer os.Remove(password)
	if err := initdb(ctx, owner, bin, fresh, "--pwfile="+password); err != nil {
		return err
	}
	if err := os.Rename(fresh, path); err != nil {
		return fmt.Errorf("pgdev: keep the prepared cluster: %w", err)
	}
	return nil
}

// passwordNobodyKnows is a file with the password that initdb asks for. The copies get their own before they run.
func passwordNobodyKnows(owner identity, dir string) (string, error) {
	file, err := os.CreateTemp(dir, ".password-*")
	if err != nil {
		return "", fmt.Errorf("pgdev: prepare a cluster: %w", err)
	}
	_, err = file.WriteString(rand.Text() + "\n")
	if err = errors.Join(err, file.Close(), owner.own(file.Name())); err != nil {
		return "", errors.Join(fmt.Errorf("pgdev: prepare a cluster: %w", err), os.Remove(file.Name()))
	}
	return file.Name(), nil
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// copyPrepared makes a cluster of the prepared one, with a password.
func copyPrepared(ctx context.Context, owner identity, bin installation, dir, password string) error {
	source := preparedPath(owner, bin)
	if source == "" || !isFolder(source) {
		return errors.New("pgdev: no cluster is prepared")
	}
	if err := emptyFolder(owner, dir); err != nil {
		return err
	}
	// As the user who owns both: so the copies are his.
	if out, err := owner.command(ctx, "cp", "-R", source+"/.", dir).CombinedOutput(); err != nil {
		return fmt.Errorf("pgdev: copy the prepared cluster: %w\n%s", err, tail(string(out)))
	}
	hash, err := scram(password)
	if err != nil {
		return fmt.Errorf("pgdev: hash the password: %w", err)
	}
	alone := owner.command(ctx, filepath.Join(bin.dir, "postgres"), "--single", "-F", "-c", "exit_on_error=on", "-D", dir,
		"postgres")
	alone.Stdin = strings.NewReader("ALTER ROLE " + superuser + " PASSWORD '" + hash + "'\n")
	if out, err := alone.CombinedOutput(); err != nil {
		return fmt.Errorf("pgdev: set the password: %w\n%s", err, tail(string(out)))
	}
	return nil
}

// scram is a password as PostgreSQL keeps it, hashed once and not 4096 times: that is to slow down those who guess, and
// nobody guesses 130 random bits. Clients hash as often for each of their connections, and tests make many thousands.
func scram(password string) (string, error) {
	salt := make([]byte, 16)
	_, _ = rand.Read(salt) // never fails
	salted, err := pbkdf2.Key(sha256.New, password, salt, 1, sha256.Size)
	if err != nil {
		return "", err
	}
	key := func(name string) []byte {
		mac := hmac.New(sha256.New, salted)
		mac.Write([]byte(name))
		return mac.Sum(nil)
	}
	text := base64.StdEncoding.EncodeToString
	stored := sha256.Sum256(key("Client Key"))
	return fmt.Sprintf("SCRAM-SHA-256$1:%s$%s:%s", text(salt), text(stored[:]), text(key("Server Key"))), nil
}
