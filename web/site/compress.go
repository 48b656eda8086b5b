package site

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/labstack/echo/v4"
)

// compressFrom is the size in bytes from which a page is compressed: a smaller one fits into one packet.
const compressFrom = 1400

// respond sends a page, compressed with gzip if the browser accepts it.
//
// An attacker could guess a secret from the length of a page that has the secret and a text of the attacker. So pages
// with secrets are not compressed (Plain), nor any page that another site has requested.
func (s *Site) respond(c echo.Context, status int, page []byte) error {
	c.Response().Header().Add(echo.HeaderVary, echo.HeaderAcceptEncoding)
	compress := len(page) >= compressFrom && acceptsGzip(c.Request()) && !fromOtherSite(c.Request()) &&
		(s.Plain == nil || !s.Plain(c))
	if compress {
		if shorter := compressed(page, gzip.BestSpeed); shorter != nil {
			c.Response().Header().Set(echo.HeaderContentEncoding, "gzip")
			page = shorter
		}
	}
	return c.HTMLBlob(status, page)
}

// fromOtherSite reports that a browser sends a request for another site. Browsers send the header over HTTPS and to
// localhost; without HTTPS, the length of a page is no secret.
func fromOtherSite(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return site == "cross-site" || site == "same-site"
}

// acceptsGzip reports whether the client names gzip, and not with the weight 0, which rejects it (RFC 9110, section
// 12.4.2).
func acceptsGzip(r *http.Request) bool {
	for coding := range strings.SplitSeq(strings.Join(r.Header.Values(echo.HeaderAcceptEncoding), ","), ",") {
		name, weight, _ := strings.Cut(coding, ";")
		if !strings.EqualFold(strings.TrimSpace(name), "gzip") {
			continue
		}
		_, q, _ := strings.Cut(weight, "=")
		parsed, err := strconv.ParseFloat(strings.TrimSpace(q), 64)
		return err != nil || parsed > 0
	}
	return false
}

// writers are the gzip writers of each level: a new one allocates 800 kB.
var writers [gzip.BestCompression + 1]sync.Pool

// compressed is a body in gzip; nil if that is not shorter.
func compressed(body []byte, level int) []byte {
	var out bytes.Buffer
	w, _ := writers[level].Get().(*gzip.Writer)
	if w == nil {
		w, _ = gzip.NewWriterLevel(&out, level) // the level is valid
	}
	defer writers[level].Put(w)
	w.Reset(&out)
	_, _ = w.Write(body) // a buffer returns no error
	_ = w.Close()
	if out.Len() >= len(body) {
		return nil
	}
	return out.Bytes()
}
