package e2e

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// wire is the network between postrider and PostgreSQL: it hands on whole messages of PostgreSQL's protocol
// (documentation, chapter 54), until a test puts a fault in.
type wire struct {
	t       *testing.T
	url     string // of the database by this way
	target  string
	fault   atomic.Pointer[fault]
	serving sync.WaitGroup
}

// fault decides about one message, before it is handed on.
type fault func(l *wireLine, m wireMessage) fate

type fate int

const (
	handOn  fate = iota
	cutHere      // the connection ends, and the message with it
	silence      // nothing passes on this connection any more, either way, and it stays open
	keep         // the message waits for a later one's fate
)

// wireMessage is one message. Kind is its first byte; 0 for the one that opens a connection.
type wireMessage struct {
	up     bool // to PostgreSQL
	kind   byte
	raw    []byte
	number int // of this direction on this connection, 1 = first
}

// wireLine is one connection.
type wireLine struct {
	wire   *wire
	ends   [2]net.Conn // down, up
	silent atomic.Bool

	mu         sync.Mutex
	statements map[string]string // prepared, by name
	statement  string            // the statement that was executed last
	rows       int               // in the response so far
}

// newWire goes to the database's PostgreSQL.
func newWire(t *testing.T, db *database) *wire {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	at, err := url.Parse(db.url)
	require.NoError(t, err)
	w := &wire{t: t, target: at.Host}
	at.Host = listener.Addr().String()
	w.url = at.String()
	w.serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			w.serving.Go(func() { w.serve(conn) })
		}
	})
	t.Cleanup(func() { // the node, which was started later, has ended, and its connections
		listener.Close()
		w.serving.Wait()
	})
	return w
}

// through is the database as the program reaches it over the wire. The test's own questions go straight to it.
func (w *wire) through(db *database) *database {
	return &database{t: db.t, url: w.url, pool: db.pool, extra: db.extra}
}

// breaks puts a fault in; heal takes it out.
func (w *wire) breaks(f fault) { w.fault.Store(&f) }
func (w *wire) heal()          { w.fault.Store(nil) }

func (w *wire) serve(down net.Conn) {
	up, err := net.Dial("tcp", w.target)
	if err != nil {
		down.Close()
		return
	}
	l := &wireLine{wire: w, ends: [2]net.Conn{down, up}, statements: map[string]string{}}
	var copies sync.WaitGroup
	copies.Go(func() { l.copy(true) })
	copies.Go(func() { l.copy(false) })
	copies.Wait()
}

func (l *wireLine) cut() {
	for _, end := range l.ends {
		end.Close()
	}
}

// copy forwards the bytes of one end, until either end is closed.
func (l *wireLine) copy(up bool) {
	defer l.cut()
	from, to := l.ends[1], l.ends[0]
	if up {
		from, to = to, from
	}
	in, out := bufio.NewReaderSize(from, 64<<10), bufio.NewWriterSize(to, 64<<10)
	var kept []byte
	for number := 1; ; number++ {
		m, err := readWireMessage(in, up && number == 1)
		if err != nil {
			return
		}
		m.up, m.number = up, number
		l.note(m)
		met := l.meet(m)
		if !up && m.kind == 'Z' {
			l.forget()
		}
		switch kept = append(kept, m.raw...); met {
		case keep:
			continue
		case cutHere:
			_ = out.Flush()
			return
		case silence:
			l.silent.Store(true)
		case handOn:
			_, _ = out.Write(kept)
		}
		kept = kept[:0]
		if in.Buffered() == 0 && out.Flush() != nil {
			return
		}
	}
}

func (l *wireLine) meet(m wireMessage) fate {
	if l.silent.Load() {
		return silence
	}
	if f := l.wire.fault.Load(); f != nil {
		return (*f)(l, m)
	}
	return handOn
}

func readWireMessage(in *bufio.Reader, opening bool) (m wireMessage, err error) {
	head := 5
	if opening {
		head = 4
	}
	m.raw = make([]byte, head)
	if _, err = io.ReadFull(in, m.raw); err != nil {
		return m, err
	}
	if !opening {
		m.kind = m.raw[0]
	}
	body := make([]byte, binary.BigEndian.Uint32(m.raw[head-4:])-4)
	_, err = io.ReadFull(in, body)
	m.raw = append(m.raw, body...)
	return m, err
}

// note follows which statement is being executed: Parse names it, Bind takes it by its name, each row of the response
// is a DataRow.
func (l *wireLine) note(m wireMessage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case m.up && m.kind == 'P':
		name, rest, _ := bytes.Cut(m.raw[5:], []byte{0})
		statement, _, _ := bytes.Cut(rest, []byte{0})
		l.statements[string(name)] = string(statement)
	case m.up && m.kind == 'B':
		_, rest, _ := bytes.Cut(m.raw[5:], []byte{0}) // the portal
		name, _, _ := bytes.Cut(rest, []byte{0})
		// The statements of one batch are bound one after the other: what matters of T1 stands between BEGIN and COMMIT.
		if statement := l.statements[string(name)]; l.statement == "" || len(statement) > len(l.statement) {
			l.statement = statement
		}
	case !m.up && m.kind == 'D':
		l.rows++
	}
}

// forget is called when the response is complete (ReadyForQuery): the node sends nothing before it has read that.
func (l *wireLine) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.statement, l.rows = "", 0
}

// executes reports whether the executing statement contains this part, and the number of rows in the response so far.
func (l *wireLine) executes(part string) (rows int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rows, strings.Contains(l.statement, part)
}

// cutAfter lets every connection live for n messages of one direction. full counts those that were new and lived that
// long.
func cutAfter(n int, up bool, full *atomic.Int64) fault {
	return func(_ *wireLine, m wireMessage) fate {
		switch {
		case m.up != up || m.number <= n:
			return handOn
		case m.number == n+1:
			full.Add(1)
		}
		return cutHere
	}
}

// losesResponses cuts the connection when PostgreSQL has responded to a statement with this part, with rows, and says
// so by ReadyForQuery: its transaction is committed, without a response.
func losesResponses(part string, times int64, lost *atomic.Int64) fault {
	return func(l *wireLine, m wireMessage) fate {
		rows, executing := l.executes(part)
		switch {
		case m.up || !executing:
			return handOn
		case m.kind != 'Z':
			return keep
		case rows == 0 || lost.Add(1) > times:
			return handOn
		}
		return cutHere
	}
}

// losesQuestions cuts the connection before PostgreSQL has heard of a statement with this part in it.
func losesQuestions(part string, times int64, lost *atomic.Int64) fault {
	return func(l *wireLine, m wireMessage) fate {
		if _, executing := l.executes(part); executing && m.up && m.kind == 'B' && lost.Add(1) <= times {
			return cutHere
		}
		return handOn
	}
}
