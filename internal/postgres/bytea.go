package postgres

import (
	"encoding/binary"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"
)

func registerByteas(m *pgtype.Map) {
	bytea, _ := m.TypeForOID(pgtype.ByteaOID)
	m.RegisterType(&pgtype.Type{
		Name: "_bytea", OID: pgtype.ByteaArrayOID, Codec: byteaArrays{&pgtype.ArrayCodec{ElementType: bytea}},
	})
}

// byteaArrays encodes [][]byte into memory of the right size. pgx appends value by value: its buffer grows by a quarter
// each time, so that a group of bodies was allocated and copied five times.
type byteaArrays struct{ *pgtype.ArrayCodec }

// PlanEncode implements pgtype.Codec.
func (c byteaArrays) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if _, ok := value.([][]byte); ok && format == pgtype.BinaryFormatCode {
		return encodeByteas{}
	}
	return c.ArrayCodec.PlanEncode(m, oid, format, value)
}

type encodeByteas struct{}

// Encode writes PostgreSQL's binary format of a bytea[]. A nil value is NULL.
func (encodeByteas) Encode(value any, buf []byte) ([]byte, error) {
	values := value.([][]byte)
	size, hasNull := 20, uint32(0)
	for _, v := range values {
		size += 4 + len(v)
		if v == nil {
			hasNull = 1
		}
	}
	number := binary.BigEndian.AppendUint32
	buf = slices.Grow(buf, size)
	buf = number(number(number(buf, 1), hasNull), pgtype.ByteaOID) // one dimension
	buf = number(number(buf, uint32(len(values))), 1)              // from index 1
	for _, v := range values {
		if v == nil {
			buf = number(buf, 1<<32-1)
			continue
		}
		buf = append(number(buf, uint32(len(v))), v...)
	}
	return buf, nil
}
