// Package ledger has files of event ids that publishers and endpoints note, and compares them to find lost events.
// Tests and the benchmark use it, the service does not.
package ledger

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
)

// Hash is the SHA-256 of one event's JSON object, from brace to brace, without the array around it. The zero value
// means that the bytes were not noted.
type Hash [sha256.Size]byte

// Ledger is a file with one line for each event: its id, a space, the hash of its bytes in hexadecimal or "-". A
// publisher notes an event after the response 200, an endpoint when it receives it. Lost events are found by comparing
// two such files, never from the tables of the service that may have lost them. Methods are safe for concurrent use.
type Ledger struct {
	mu     sync.Mutex
	file   *os.File
	blocks *bufio.Writer // nil: each line is written at once
	err    error         // the first error: an incomplete ledger proves nothing
}

// Open opens a ledger for appending. It writes each line at once, so that a killed program loses none.
func Open(path string) (*Ledger, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open ledger: %w", err)
	}
	return &Ledger{file: file}, nil
}

// Create creates a ledger that writes lines in blocks, and the last ones at Close.
func Create(path string) (*Ledger, error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("create ledger: %w", err)
	}
	return &Ledger{file: file, blocks: bufio.NewWriterSize(file, 64<<10)}, nil
}

// Note appends an event. The id must not contain a line break. After an error every later Note and Close return it.
func (l *Ledger) Note(id string, hash Hash) error {
	return l.Write(AppendLine(nil, "", []byte(id), hash))
}

// Write appends lines of AppendLine.
func (l *Ledger) Write(lines []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return l.err
	}
	var err error
	if l.blocks != nil {
		_, err = l.blocks.Write(lines)
	} else {
		_, err = l.file.Write(lines)
	}
	if err != nil {
		l.err = fmt.Errorf("write ledger: %w", err)
	}
	return l.err
}

// AppendLine appends the line of an event whose id begins with a prefix.
func AppendLine(lines []byte, prefix string, id []byte, hash Hash) []byte {
	lines = append(append(append(lines, prefix...), id...), ' ')
	if hash == (Hash{}) {
		return append(lines, '-', '\n')
	}
	return append(hex.AppendEncode(lines, hash[:]), '\n')
}

// Close completes the file.
func (l *Ledger) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.err
	if l.blocks != nil && err == nil {
		err = l.blocks.Flush()
	}
	err = errors.Join(err, l.file.Close())
	l.err = os.ErrClosed
	if err != nil {
		return fmt.Errorf("close ledger: %w", err)
	}
	return nil
}

// Entry is one line of a ledger.
type Entry struct {
	ID   string
	Hash Hash // zero: not noted
}

// Read reads a ledger. A last line without its end is left out: its writer was killed while writing it. Any
// other invalid line is an error that names its number.
func Read(path string) ([]Entry, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read ledger: %w", err)
	}
	entries := make([]Entry, 0, bytes.Count(raw, []byte{'\n'}))
	for number := 1; ; number++ {
		line, rest, whole := bytes.Cut(raw, []byte{'\n'})
		if !whole {
			return entries, nil
		}
		entry, ok := parseEntry(line)
		if !ok {
			return nil, fmt.Errorf("read ledger: %s: line %d is invalid", path, number)
		}
		entries, raw = append(entries, entry), rest
	}
}

// parseEntry splits at the last space, because an id may contain spaces.
func parseEntry(line []byte) (e Entry, ok bool) {
	space := bytes.LastIndexByte(line, ' ')
	if space < 1 {
		return e, false
	}
	e.ID = string(line[:space])
	hash := line[space+1:]
	if string(hash) == "-" {
		return e, true
	}
	if len(hash) != hex.EncodedLen(len(e.Hash)) {
		return e, false
	}
	_, err := hex.Decode(e.Hash[:], hash)
	return e, err == nil
}

// Verdict compares published and received events. The lists contain ids, sorted, each once.
type Verdict struct {
	Published int // acknowledged to the publisher
	Received  int // receipts, including duplicates

	Lost           []string // acknowledged and not received: this must never happen
	Changed        []string // received with other bytes than published, if both ledgers have a hash
	Unacknowledged []string // received although the publisher got no 200: valid only after a crash
	Duplicates     int      // receipts after the first of each id
}

// CompareFiles compares the ledger files of a publisher and an endpoint.
func CompareFiles(published, received string) (Verdict, error) {
	sent, err := Read(published)
	if err != nil {
		return Verdict{}, err
	}
	arrived, err := Read(received)
	return Compare(sent, arrived), err
}

// Compare compares the ledger of an endpoint with the publisher's.
func Compare(published, received []Entry) Verdict {
	sent := make(map[string]Hash, len(published))
	for _, e := range published {
		sent[e.ID] = e.Hash
	}
	v := Verdict{Published: len(sent), Received: len(received)}
	seen, changed := make(map[string]bool, len(received)), map[string]bool{}
	for _, e := range received {
		hash, known := sent[e.ID]
		if seen[e.ID] {
			v.Duplicates++
		} else if !known {
			v.Unacknowledged = append(v.Unacknowledged, e.ID)
		}
		seen[e.ID] = true
		if known && hash != e.Hash && hash != (Hash{}) && e.Hash != (Hash{}) && !changed[e.ID] {
			changed[e.ID] = true
			v.Changed = append(v.Changed, e.ID)
		}
	}
	for id := range sent {
		if !seen[id] {
			v.Lost = append(v.Lost, id)
		}
	}
	slices.Sort(v.Lost)
	slices.Sort(v.Changed)
	slices.Sort(v.Unacknowledged)
	return v
}
