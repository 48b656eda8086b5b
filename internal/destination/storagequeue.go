package destination

import (
	"encoding/base64"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// queueForm puts messages into a queue of Azure Storage.
//
// Source: Microsoft, Queue Storage REST API, Put Message.
type queueForm struct {
	*translator
	messages, metadata *url.URL
	account            string
	keys               [2][]byte
}

const (
	queueContentType = "application/xml"
	queueVersion     = "2021-12-02" // of the service's API
	queueOpen        = "<QueueMessage><MessageText>"
	queueClose       = "</MessageText></QueueMessage>"
	maxQueueText     = 64 << 10 // of the text in base64
)

var errStorageKey = errors.New("must be a storage account's key, which is base64")

func newQueueForm(p *Properties, queue *url.URL, responses *translator) (Form, error) {
	f := &queueForm{translator: responses, messages: queue.JoinPath("messages"), metadata: queue.JoinPath()}
	f.account = storageAccount(queue)
	for i, key := range []string{p.PrimaryKey, p.SecondaryKey} {
		decoded, err := base64.StdEncoding.DecodeString(key)
		if err != nil {
			return nil, errStorageKey // without err, which may show where the key has which character
		}
		f.keys[i] = decoded
	}
	signature := strings.TrimPrefix(p.SharedAccessSignature, "?")
	query := make([]string, 0, 2)
	if ttl := p.QueueMessageTimeToLiveInSeconds; ttl != nil {
		query = append(query, "messagettl="+strconv.Itoa(*ttl))
	}
	if signature != "" {
		query, signature = append(query, signature), "&"+signature
	}
	f.messages.RawQuery = strings.Join(query, "&")
	f.metadata.RawQuery = "comp=metadata" + signature
	return f, nil
}

// storageAccount returns the account of a URL: the first label of a host such as orders.queue.core.windows.net, else
// the first part of the path, as emulators have it; "" if there is none.
func storageAccount(u *url.URL) string {
	if storageHost(u) {
		account, _, _ := strings.Cut(u.Hostname(), ".")
		return strings.ToLower(account)
	}
	account, _, _ := strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
	return account
}

func storageHost(u *url.URL) bool { return strings.Contains(strings.ToLower(u.Hostname()), ".queue.") }

// Write encodes the text in base64, as Event Grid does.
func (*queueForm) Write(messages []Message) (body []byte, contentType string) {
	if len(messages) == 0 {
		return nil, ""
	}
	body = make([]byte, 0, len(queueOpen)+base64.StdEncoding.EncodedLen(len(messages[0].Body))+len(queueClose))
	body = base64.StdEncoding.AppendEncode(append(body, queueOpen...), messages[0].Body)
	return append(body, queueClose...), queueContentType
}

func (*queueForm) MaxBytes() int { return len(queueOpen) + maxQueueText + len(queueClose) }

func (f *queueForm) Authorize(h http.Header, body []byte, now time.Time, second bool) (url string, ok bool) {
	key, ok := f.key(second)
	if !ok {
		return "", false
	}
	f.signed.Store(now.Unix())
	h.Set("Content-Type", queueContentType)
	f.sign(http.MethodPost, f.messages, h, len(body), key, now)
	return f.messages.String(), true
}

// key returns the key that signs; ok is false if there is no second one.
func (f *queueForm) key(second bool) (key []byte, ok bool) {
	if second {
		return f.keys[1], len(f.keys[1]) > 0
	}
	return f.keys[0], true
}

// Check reads the queue's metadata.
func (f *queueForm) Check(now time.Time, second bool) (url string, h http.Header, ok bool) {
	key, ok := f.key(second)
	if !ok {
		return "", nil, false
	}
	h = http.Header{}
	f.signed.Store(now.Unix())
	f.sign(http.MethodGet, f.metadata, h, 0, key, now)
	return f.metadata.String(), h, true
}

// sign adds the headers that every request has and, if there is a key, its signature.
// Source: Microsoft, Authorize with Shared Key.
func (f *queueForm) sign(method string, u *url.URL, h http.Header, length int, key []byte, now time.Time) {
	h.Set("X-Ms-Date", now.UTC().Format(http.TimeFormat))
	h.Set("X-Ms-Version", queueVersion)
	if len(key) == 0 {
		return
	}
	size := ""
	if length > 0 {
		size = strconv.Itoa(length)
	}
	// Verb, Content-Encoding, -Language, -Length, -MD5, -Type, Date, four conditions and Range.
	lines := []string{method, "", "", size, "", h.Get("Content-Type"), "", "", "", "", "", ""}
	var own []string
	for name, values := range h {
		if name = strings.ToLower(name); strings.HasPrefix(name, "x-ms-") {
			own = append(own, name+":"+strings.Join(values, ","))
		}
	}
	slices.Sort(own)
	lines = append(append(lines, own...), "/"+f.account+u.EscapedPath())
	query := u.Query()
	for _, name := range slices.Sorted(maps.Keys(query)) {
		lines = append(lines, strings.ToLower(name)+":"+strings.Join(query[name], ","))
	}
	signature := base64.StdEncoding.EncodeToString(sum(key, strings.Join(lines, "\n")))
	h.Set("Authorization", "SharedKey "+f.account+":"+signature)
}

// queueName is whether a name can be a storage queue.
// Source: Microsoft, Naming Queues and Metadata.
func queueName(name string) bool {
	other := func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' }
	return len(name) >= 3 && len(name) <= 63 && !strings.ContainsFunc(name, other) && !strings.Contains(name, "--") &&
		strings.Trim(name, "-") == name
}
