package bench

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
)

// Hash is the SHA-256 of one event's JSON object, from brace to brace, without the array around it. Its zero value
// means that the bytes were not noted.
type Hash [sha256.Size]byte

// Ledger is a file of one line per event: its id, a space, the hash of its bytes in hexadecimal or "-". A publisher
// notes an event after it was answered 200, a sink when it was received. What is lost is told from two such files
// alone, never from the tables of the service that may have lost it. Its methods may be called from several goroutines.
type Ledger struct {
	mu   sync.Mutex
	file *os.File
	out  io.Writer // file, or a buffer before it
	line []byte
	err  error // the first failure, kept: a ledger with a hole proves nothing
}

// OpenLedger opens a publisher's ledger for appending. Each line is one write to the file, so that a publisher may be
// killed at any moment without losing what it noted (a crash of the machine is not covered).
func OpenLedger(path string) (*Ledger, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open ledger: %w", err)
	}
	return &Ledger{file: file, out: file}, nil
}

// openBufferedLedger opens a sink's ledger: lines reach the file in blocks of 64 KiB, and all of them at Close.
func openBufferedLedger(path string) (*Ledger, error) {
	l, err := OpenLedger(path)
	if err != nil {
		return nil, err
	}
	l.out = bufio.NewWriterSize(l.file, 64<<10)
	return l, nil
}

// Note appends an event. The id must hold no line break, which no event's id does. An error stays: every later Note and
// Close return it too.
func (l *Ledger) Note(id string, hash Hash) error { return l.note("", []byte(id), hash) }

func (l *Ledger) note(prefix string, id []byte, hash Hash) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.line = appendLine(l.line[:0], prefix, id, hash)
	return l.write(l.line)
}

// noteLines appends what appendLine made, in one write.
func (l *Ledger) noteLines(lines []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.write(lines)
}

func appendLine(lines []byte, prefix string, id []byte, hash Hash) []byte {
	lines = append(append(append(lines, prefix...), id...), ' ')
	if hash == (Hash{}) {
		return append(lines, '-', '\n')
	}
	return append(hex.AppendEncode(lines, hash[:]), '\n')
}

func (l *Ledger) write(lines []byte) error {
	if l.err != nil {
		return l.err
	}
	if _, err := l.out.Write(lines); err != nil {
		l.err = fmt.Errorf("write ledger: %w", err)
	}
	return l.err
}

// Close writes what is buffered, waits until the disk has it and closes the file.
func (l *Ledger) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.err
	if buffer, ok := l.out.(*bufio.Writer); ok && err == nil {
		err = buffer.Flush()
	}
	l.err = os.ErrClosed
	if err = errors.Join(err, l.file.Sync(), l.file.Close()); err != nil {
		return fmt.Errorf("close ledger: %w", err)
	}
	return nil
}

// Entry is one line of a ledger.
type Entry struct {
	ID   string
	Hash Hash // zero: not noted
}

// ReadLedger reads a ledger's lines in their order. A last line without its end is left out: its writer was killed
// while writing it. Any other line that is none of a ledger's is an error that names its number.
func ReadLedger(path string) ([]Entry, error) {
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
			return nil, fmt.Errorf("read ledger: %s: line %d is no entry", path, number)
		}
		entries, raw = append(entries, entry), rest
	}
}

// parseEntry splits at the last space, because an id may hold spaces.
func parseEntry(line []byte) (Entry, bool) {
	space := bytes.LastIndexByte(line, ' ')
	if space < 1 {
		return Entry{}, false
	}
	entry, hash := Entry{ID: string(line[:space])}, line[space+1:]
	if string(hash) == "-" {
		return entry, true
	}
	if len(hash) != hex.EncodedLen(len(entry.Hash)) {
		return Entry{}, false
	}
	_, err := hex.Decode(entry.Hash[:], hash)
	return entry, err == nil
}

// Verdict is what two ledgers say of the way between them. The lists hold ids, sorted, each once.
type Verdict struct {
	Published int // acknowledged to the publisher
	Received  int // receipts at the sink, duplicates included
	// Lost were acknowledged and are not in the sink's ledger: the one thing that must never happen.
	Lost []string
	// Changed arrived, at least once, with other bytes than were published. Only where both ledgers noted a hash.
	Changed []string
	// Unacknowledged arrived although the publisher noted no 200: right after a crash that swallowed the answer, wrong
	// else.
	Unacknowledged []string
	// Duplicates are the receipts beyond the first of each id.
	Duplicates int
}

// Compare holds a sink's ledger against its publisher's.
func Compare(published, received []Entry) Verdict {
	sent := make(map[string]Hash, len(published))
	for _, e := range published {
		sent[e.ID] = e.Hash
	}
	v := Verdict{Published: len(sent), Received: len(received)}
	seen, changed := make(map[string]bool, len(received)), map[string]bool{}
	for _, e := range received {
		hash, known := sent[e.ID]
		switch {
		case seen[e.ID]:
			v.Duplicates++
		case !known:
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
