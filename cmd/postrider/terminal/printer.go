package terminal

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// Printer writes whole lines from many goroutines. After close it is silent.
type Printer struct {
	mu     sync.Mutex
	out    io.Writer
	closed bool
}

// NewPrinter returns a printer that writes to out.
func NewPrinter(out io.Writer) *Printer { return &Printer{out: out} }

// Write implements io.Writer.
func (p *Printer) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return len(b), nil
	}
	return p.out.Write(b)
}

// Close makes the printer silent.
func (p *Printer) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
}

// Line prints a line.
func (p *Printer) Line(text string) { fmt.Fprintln(p, text) }

// Row prints a name and its value.
func (p *Printer) Row(name, value string) { fmt.Fprintf(p, "  %-15s%s\n", name, value) }

// Clock is the time of day.
func Clock(t time.Time) string { return t.Format("15:04:05") }
