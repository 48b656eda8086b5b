package terminal

import (
	"fmt"
	"io"
	"os"
)

// maxFile is as much as a request may have.
const maxFile = 1 << 20

// ReadFileOrInput is ReadUpTo the size that a request may have.
func ReadFileOrInput(name string) ([]byte, error) { return ReadUpTo(name, maxFile) }

// ReadUpTo reads a file, or standard input for -, that has at most so many bytes.
func ReadUpTo(name string, most int64) ([]byte, error) {
	in := os.Stdin
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, Usagef("%v", err)
		}
		defer func() { _ = file.Close() }()
		in = file
	}
	body, err := io.ReadAll(io.LimitReader(in, most+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", name, err)
	case int64(len(body)) > most:
		return nil, Usagef("%s: such a file has at most %d bytes", name, most)
	}
	return body, nil
}
