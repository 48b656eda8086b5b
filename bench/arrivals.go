package bench

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"
)

// Arrival is when a sink met an event: the first receipt of each one, or one that it did not acknowledge. Times are in
// nanoseconds since 1970.
type Arrival struct {
	SentAt int64 // as the event's data.sentAt says; 0 when it says nothing
	At     int64
	// Acknowledged is false of an event at /hang or /status.
	Acknowledged bool
}

// arrivalBytes is the size of an Arrival on file: two times and a flag.
const arrivalBytes = 8 + 8 + 1

// arrivalLog appends arrivals to a file of binary records. Phases and seconds are told from the file after the run: the
// sink shares its cores with what is measured, and this costs it a copy of 17 bytes.
type arrivalLog struct {
	file *os.File
	out  *bufio.Writer // keeps its first error
	line []byte
	done bool
}

func createArrivals(path string) (*arrivalLog, error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("create the file of arrivals: %w", err)
	}
	return &arrivalLog{file: file, out: bufio.NewWriterSize(file, 64<<10)}, nil
}

func (l *arrivalLog) note(a Arrival) error {
	if l.done {
		return fmt.Errorf("note an arrival: %w", os.ErrClosed)
	}
	l.line = binary.LittleEndian.AppendUint64(l.line[:0], uint64(a.SentAt))
	l.line = binary.LittleEndian.AppendUint64(l.line, uint64(a.At))
	flag := byte(0)
	if a.Acknowledged {
		flag = 1
	}
	if _, err := l.out.Write(append(l.line, flag)); err != nil {
		return fmt.Errorf("note an arrival: %w", err)
	}
	return nil
}

func (l *arrivalLog) close() error {
	l.done = true
	if err := errors.Join(l.out.Flush(), l.file.Close()); err != nil {
		return fmt.Errorf("complete the arrivals: %w", err)
	}
	return nil
}

// ReadArrivals reads what a sink noted at SinkOptions.Arrivals, complete once the sink has ended.
func ReadArrivals(path string) ([]Arrival, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read arrivals: %w", err)
	}
	if len(raw)%arrivalBytes != 0 {
		return nil, fmt.Errorf("read arrivals: %s is not complete", path)
	}
	arrivals := make([]Arrival, 0, len(raw)/arrivalBytes)
	for ; len(raw) > 0; raw = raw[arrivalBytes:] {
		arrivals = append(arrivals, Arrival{
			SentAt: int64(binary.LittleEndian.Uint64(raw)), At: int64(binary.LittleEndian.Uint64(raw[8:])),
			Acknowledged: raw[16] == 1,
		})
	}
	return arrivals, nil
}

// span is a stretch of time, its end not included.
type span struct{ from, to time.Time }

func (s span) holds(nanos int64) bool { return nanos >= s.from.UnixNano() && nanos < s.to.UnixNano() }
