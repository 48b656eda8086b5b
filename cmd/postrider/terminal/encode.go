package terminal

import (
	"bytes"
	"encoding/json"
)

// EncodePlainly writes JSON without the escapes that are for HTML: text is kept as it was given.
func EncodePlainly(v any) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(v)
	return bytes.TrimSpace(text.Bytes()), err
}

// DecodeExactly keeps every digit of a number where into has room for any value.
func DecodeExactly(raw []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	return decoder.Decode(into)
}
