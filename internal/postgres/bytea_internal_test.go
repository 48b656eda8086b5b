package postgres

import (
	"bytes"
	"testing"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/require"
)

// An array of bodies is what pgx itself sends, in one allocation.
func TestByteaArrays(t *testing.T) {
	t.Parallel()
	const oid, format = pgtype.ByteaArrayOID, pgtype.BinaryFormatCode
	large := bytes.Repeat([]byte("x"), 100_000)
	own := pgtype.NewMap()
	registerByteas(own)
	for name, values := range map[string][][]byte{
		"none": {}, "one": {[]byte("a")}, "NULL and empty": {nil, {}, []byte("b")}, "large": {large, large, large, large},
	} {
		before := []byte("parameters before")
		expected, err := pgtype.NewMap().Encode(oid, format, values, bytes.Clone(before))
		require.NoError(t, err, name)
		encoded, err := own.Encode(oid, format, values, before)
		require.NoError(t, err, name)
		require.Equal(t, expected, encoded, name)
		require.LessOrEqual(t, cap(encoded), len(encoded)+len(encoded)/8+64, name)
		var read [][]byte
		require.NoError(t, own.Scan(oid, format, encoded[len(before):], &read), name)
		require.Equal(t, values, read, name)
	}
	null, err := own.Encode(oid, format, [][]byte(nil), nil)
	require.NoError(t, err)
	require.Nil(t, null)
	text, err := own.Encode(oid, pgtype.TextFormatCode, [][]byte{[]byte("a")}, nil)
	require.NoError(t, err)
	require.Equal(t, `{"\\x61"}`, string(text))
}
