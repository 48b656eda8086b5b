package pgdev

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// settingName is what PostgreSQL takes for a parameter, extensions' dotted ones included.
var settingName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?$`)

// smallWAL bounds what a server for tests keeps of its write-ahead log.
const smallWAL = "256MB"

// settings are the lines of postgresql.conf: the package's own, then the caller's, which win.
func settings(opts Options, port int) map[string]string {
	lines := map[string]string{
		"listen_addresses":        "127.0.0.1",
		"port":                    strconv.Itoa(port),
		"unix_socket_directories": "", // a socket's path ends at 107 bytes, which temporary folders of macOS exceed
		"password_encryption":     "scram-sha-256",
		"max_connections":         "200",
		"shared_buffers":          "256MB",
		"max_wal_size":            "4GB",
		"wal_compression":         "off",
		"timezone":                "UTC",
		"log_timezone":            "UTC",
		"log_checkpoints":         "off",
		"logging_collector":       "off", // stderr is the log file already
	}
	if !opts.Durable {
		maps.Copy(lines, map[string]string{
			"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off",
			"max_wal_size": smallWAL, // the data may be in memory, and a checkpoint without fsync costs little
		})
	}
	maps.Copy(lines, opts.Settings)
	return lines
}

// render prints postgresql.conf in the order of the names, so that two starts with the same options write the same
// bytes.
func render(lines map[string]string) (string, error) {
	var b strings.Builder
	b.WriteString("# Written by postrider at every start. What ALTER SYSTEM sets (postgresql.auto.conf) wins over it.\n")
	for _, name := range slices.Sorted(maps.Keys(lines)) {
		value := lines[name]
		if !settingName.MatchString(name) || strings.ContainsAny(value, "\n\r\x00") {
			return "", fmt.Errorf("pgdev: %q = %q is no PostgreSQL setting", name, value)
		}
		fmt.Fprintf(&b, "%s = '%s'\n", name, quoteSetting.Replace(value))
	}
	return b.String(), nil
}

// quoteSetting escapes what means something inside the quotes of postgresql.conf.
var quoteSetting = strings.NewReplacer(`'`, `''`, `\`, `\\`)

// configure replaces the sample that initdb leaves.
func (s *Server) configure(port int) error {
	text, err := render(settings(s.opts, port))
	if err != nil {
		return err
	}
	path := filepath.Join(s.folder.data(), "postgresql.conf")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return fmt.Errorf("pgdev: write settings: %w", err)
	}
	return nil
}
