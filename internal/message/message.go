// Package message writes notices, the events of postrider.system, as messages to chat and paging services. It is pure.
package message

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Format is the form in which a notice is sent.
type Format string

// The formats. None is the notice itself, a CloudEvent; so is the zero value.
const (
	None      Format = "None"
	Slack     Format = "Slack"
	Teams     Format = "Teams"
	PagerDuty Format = "PagerDuty"
)

// Formats are all formats, None first.
var Formats = []string{string(None), string(Slack), string(Teams), string(PagerDuty)}

// IsMessage reports whether f is the format of a service.
func (f Format) IsMessage() bool { return f != "" && f != None }

// ContentType is the media type of all messages.
const ContentType = "application/json"

// Settings are what a message depends on beside its notice.
type Settings struct {
	Format Format
	// RoutingKey is PagerDuty's secret key of an integration; other formats have none.
	RoutingKey string
	// BaseURL is the public URL of postrider, without a slash at its end; "" = messages have no link.
	BaseURL string
}

// Write writes the CloudEvent as a message. A notice of an unknown type becomes its type, its subject and its data. It
// fails if the event is not a JSON object, and for format None.
func Write(cloudEvent []byte, s Settings) ([]byte, error) {
	n, err := readNotice(cloudEvent)
	if err != nil {
		return nil, err
	}
	t := n.text(s.BaseURL)
	switch s.Format {
	case Slack:
		return slack(t)
	case Teams:
		return teams(t)
	case PagerDuty:
		return pagerDuty(n, t, s.RoutingKey)
	case None:
	}
	return nil, fmt.Errorf("write a message: no format %q", s.Format)
}

// text is the content of a message, which all formats share. Its texts have one line each.
type text struct {
	Title   string
	Meaning string
	Facts   []fact
	Link    string // the page of the dashboard; "" without a base URL
	Command string // the next step; "" if there is none
}

// fact is a labeled value.
type fact struct{ Label, Value string }

const (
	ellipsis = "…"
	// maxValue bounds the characters of a fact: one long description must not displace the others.
	maxValue = 500
	// maxWord bounds the characters of any other text. Names, URLs and commands have fewer.
	maxWord = 2048
	// maxLink bounds the bytes of a link. A longer one is left out.
	maxLink = 2048
	// maxData bounds the characters of the whole data of an unknown type.
	maxData = 2000
)

// oneLine replaces control characters and line breaks by spaces.
func oneLine(s string) string {
	space := func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}
	return strings.TrimSpace(strings.Map(space, strings.ToValidUTF8(s, "�")))
}

// cut shortens a text to at most so many characters; the last one is then "…".
func cut(s string, most int) string {
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	end, count := 0, 0
	for i := range s {
		if count++; count == most {
			end = i
			break
		}
	}
	return s[:end] + ellipsis
}
