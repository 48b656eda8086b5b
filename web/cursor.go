package web

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// cursor is a place in a list that runs from the newest to the oldest: what follows is older than this row. The zero
// cursor is the top. Rows that arrive while a person reads move nothing, as an offset would.
type cursor struct {
	at time.Time
	id uuid.UUID
}

// errCursor: the place in the address was not made by one of our pages.
var errCursor = errors.New("not a place in the list")

const (
	timeBytes   = 8
	cursorBytes = timeBytes + 16
	// lastYear that a cursor may name: PostgreSQL knows later ones, but no clock of ours wrote them.
	lastYear = 9999
)

// String is the cursor as an address carries it: microseconds, as PostgreSQL keeps them, and the id that decides
// between rows of one microsecond.
func (c cursor) String() string {
	b := binary.BigEndian.AppendUint64(nil, uint64(c.at.UnixMicro()))
	return base64.RawURLEncoding.EncodeToString(append(b, c.id[:]...))
}

// parseCursor reads what String wrote; the empty text is the top of the list.
func parseCursor(text string) (cursor, error) {
	if text == "" {
		return cursor{}, nil
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(b) != cursorBytes {
		return cursor{}, fmt.Errorf("%w: %.64q", errCursor, text)
	}
	c := cursor{at: time.UnixMicro(int64(binary.BigEndian.Uint64(b))).UTC(), id: uuid.UUID(b[timeBytes:])}
	if c.at.Year() < 1970 || c.at.Year() > lastYear {
		return cursor{}, fmt.Errorf("%w: %.64q", errCursor, text)
	}
	return c, nil
}
