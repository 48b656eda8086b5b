package bench

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// The sink looks for two members in each event it is sent and shares two cores with what is measured. encoding/json
// takes 15 microseconds for that, these few functions take one. They trust their input to be JSON: of anything else
// they may make nonsense, but no panic.

// eachEvent calls f with the bytes of each event of a body, which is one object or an array of them. It returns how
// many there were, 0 for a body that is neither.
func eachEvent(body []byte, f func(event []byte)) int {
	i := skipSpace(body, 0)
	if i == len(body) {
		return 0
	}
	array := body[i] == '['
	if array {
		i = skipSpace(body, i+1)
	}
	n := 0
	for i < len(body) && body[i] == '{' {
		end := skipValue(body, i)
		if end < 0 {
			return n
		}
		f(body[i:end])
		n++
		if i = skipSpace(body, end); !array || i == len(body) || body[i] != ',' {
			return n
		}
		i = skipSpace(body, i+1)
	}
	return n
}

// member returns the value of an object's member, nil when it has none of that name.
func member(object []byte, name string) []byte {
	if len(object) == 0 || object[0] != '{' {
		return nil
	}
	for i := skipSpace(object, 1); i < len(object) && object[i] == '"'; {
		end := skipString(object, i)
		if end < 0 {
			return nil
		}
		key := object[i+1 : end-1]
		if i = skipSpace(object, end); i == len(object) || object[i] != ':' {
			return nil
		}
		i = skipSpace(object, i+1)
		if end = skipValue(object, i); end < 0 {
			return nil
		}
		if string(key) == name {
			return object[i:end]
		}
		if i = skipSpace(object, end); i < len(object) && object[i] == ',' {
			i = skipSpace(object, i+1)
		}
	}
	return nil
}

// eventID is an event's id without quotes and escapes; nil when there is none.
func eventID(event []byte) []byte {
	raw := member(event, "id")
	if len(raw) < 2 || raw[0] != '"' {
		return nil
	}
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw[1 : len(raw)-1]
	}
	var id string
	if json.Unmarshal(raw, &id) != nil {
		return nil
	}
	return []byte(id)
}

// sentAt is the event's data.sentAt in nanoseconds since 1970; 0 when there is none.
func sentAt(event []byte) int64 {
	nanos, err := strconv.ParseInt(string(member(member(event, "data"), "sentAt")), 10, 64)
	if err != nil {
		return 0
	}
	return nanos
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// skipString returns the place after the string that begins at i, -1 when it does not end.
func skipString(b []byte, i int) int {
	for i++; i < len(b); i++ {
		quote := bytes.IndexByte(b[i:], '"')
		if quote < 0 {
			return -1
		}
		escape := bytes.IndexByte(b[i:i+quote], '\\')
		if escape < 0 {
			return i + quote + 1
		}
		i += escape + 1 // on the escaped byte, which the loop steps over
	}
	return -1
}

// skipValue returns the place after the value that begins at i, -1 when it does not end.
func skipValue(b []byte, i int) int {
	if i >= len(b) {
		return -1
	}
	switch b[i] {
	case '"':
		return skipString(b, i)
	case '{', '[':
		return skipNested(b, i)
	}
	start := i
	for i < len(b) && bytes.IndexByte([]byte(",]} \n\t\r"), b[i]) < 0 {
		i++
	}
	if i == start {
		return -1
	}
	return i
}

func skipNested(b []byte, i int) int {
	for depth := 0; i < len(b); {
		switch b[i] {
		case '"':
			if i = skipString(b, i); i < 0 {
				return -1
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
		i++
	}
	return -1
}
