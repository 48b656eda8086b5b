package jsonscan

import (
	"bytes"
	"encoding/json"
)

// Encode writes a value as JSON in which <, > and & stay as they are: json.Marshal escapes them for HTML. Its errors
// are those of json.Marshal.
func Encode(value any) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	return bytes.TrimSuffix(text.Bytes(), []byte("\n")), err
}

// MustEncode is Encode of a value that can always be written, such as a string. It panics if it cannot.
func MustEncode(value any) []byte {
	text, err := Encode(value)
	if err != nil {
		panic(err)
	}
	return text
}
