package migrations

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"

	"postrider/internal/postgres"
)

const (
	// checksumTable has the file of each applied migration.
	checksumTable = Schema + ".migration_checksums"

	createChecksums = `
CREATE TABLE IF NOT EXISTS ` + checksumTable + ` (version bigint PRIMARY KEY, file text NOT NULL, sha256 text NOT NULL)`
)

// migration is one embedded file.
type migration struct{ file, sha256 string }

// embedded returns this build's migrations by their versions.
func embedded() (map[int64]migration, error) {
	names, err := fs.Glob(files, "*.sql")
	if err != nil {
		return nil, err
	}
	all := make(map[int64]migration, len(names))
	for _, name := range names {
		version, err := goose.NumericComponent(name)
		if err != nil {
			return nil, fmt.Errorf("read the version of migration %s: %w", name, err)
		}
		text, err := folder{files}.ReadFile(name)
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(text)
		all[version] = migration{name, hex.EncodeToString(sum[:])}
	}
	return all, nil
}

// folder has the migrations with the files that they include.
type folder struct{ embed.FS }

// ReadFile reads a migration.
func (f folder) ReadFile(name string) ([]byte, error) {
	text, err := f.FS.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return []byte(postgres.Include(f.FS, string(text))), nil
}

// Open opens a migration, or the folder.
func (f folder) Open(name string) (fs.File, error) {
	file, err := f.FS.Open(name)
	if err != nil || name == "." {
		return file, err
	}
	text, err := f.ReadFile(name)
	return expanded{file, bytes.NewReader(text)}, err
}

// expanded is an open migration.
type expanded struct {
	fs.File
	text *bytes.Reader
}

// Read reads the text.
func (e expanded) Read(p []byte) (int, error) { return e.text.Read(p) }

// versionStore is goose's table of applied versions. It keeps the checksum of each migration, in the migration's own
// transaction.
type versionStore struct {
	database.StoreExtender
	migrations map[int64]migration
}

// Insert records an applied migration.
func (s *versionStore) Insert(ctx context.Context, db database.DBTxConn, req database.InsertRequest) error {
	if m, ok := s.migrations[req.Version]; ok {
		const insert = "INSERT INTO " + checksumTable + " (version, file, sha256) VALUES ($1, $2, $3)"
		if _, err := db.ExecContext(ctx, insert, req.Version, m.file, m.sha256); err != nil {
			return fmt.Errorf("record the checksum of migration %s: %w", m.file, err)
		}
	}
	return s.StoreExtender.Insert(ctx, db, req)
}

// Delete removes a migration that was taken back.
func (s *versionStore) Delete(ctx context.Context, db database.DBTxConn, version int64) error {
	if _, err := db.ExecContext(ctx, "DELETE FROM "+checksumTable+" WHERE version = $1", version); err != nil {
		return fmt.Errorf("delete the checksum of migration %d: %w", version, err)
	}
	return s.StoreExtender.Delete(ctx, db, version)
}

// checkApplied rejects a database to which another text of one of these migrations was applied. Migrations that only
// the database knows are those of a newer release.
func checkApplied(ctx context.Context, pool *pgxpool.Pool) error {
	known, err := embedded()
	if err != nil {
		return fmt.Errorf("read the embedded migrations: %w", err)
	}
	if there, err := exists(ctx, pool, versionTable); err != nil || !there {
		return err
	}
	const query = `SELECT v.version_id, coalesce(c.sha256, '') FROM ` + versionTable + ` v
		LEFT JOIN ` + checksumTable + ` c ON c.version = v.version_id WHERE v.is_applied ORDER BY 1`
	rows, err := pool.Query(ctx, query)
	if err != nil {
		return fmt.Errorf("read the applied migrations: %w", err)
	}
	var version int64
	var applied string
	_, err = pgx.ForEachRow(rows, []any{&version, &applied}, func() error {
		if m, ok := known[version]; ok && m.sha256 != applied {
			return m.changed(applied)
		}
		return nil
	})
	return err
}

// changed is the error about a database to which another text of this migration was applied, and what to do.
func (m migration) changed(applied string) error {
	if applied == "" {
		applied = "unknown"
	}
	return fmt.Errorf("migration %s was changed after it was applied to this database (SHA-256 then %s, now %s): "+
		"run the release of postrider that created this database, or create a new one", m.file, applied, m.sha256)
}
