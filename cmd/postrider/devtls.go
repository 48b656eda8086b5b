package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"postrider/internal/local"
)

const (
	devAuthorityLasts   = 5 * 365 * 24 * time.Hour
	devCertificateLasts = 90 * 24 * time.Hour // within that of its authority
	devRenewBefore      = 100 * 24 * time.Hour
	devClockSkew        = time.Hour
	// devMaxCertificates bounds the certificates in memory: each name under localhost has its own.
	devMaxCertificates = 1000
)

// devTLS is the folder of dev's certificate authority. It can sign only for names of this machine and those of
// --tls-name: a client that trusts it trusts no certificate for another name, even if the key becomes known.
//
// Clients such as Node.js and OpenSSL accept no certificate for *.localhost. So each name gets its own, when a client
// requests it.
type devTLS struct {
	dir   string
	names []string // beside localhost; names under them are included
}

func (d devTLS) files() tlsFlags {
	return tlsFlags{TLSCert: filepath.Join(d.dir, "ca.pem"), TLSKey: filepath.Join(d.dir, "ca-key.pem")}
}

// permitted are the names that the authority may sign for, with the names under them.
func (d devTLS) permitted() []string {
	names := []string{"localhost"}
	for _, name := range d.names {
		names = append(names, strings.ToLower(strings.TrimSuffix(name, ".")))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// prepare returns the authority. It creates one if there is none, if it is for other names, or expires soon. Files that
// are not of such an authority stay: they are an error.
func (d devTLS) prepare(now time.Time) (*devAuthority, error) {
	files := d.files()
	if err := files.replaceable(); err != nil {
		return nil, err
	}
	kept, err := tls.LoadX509KeyPair(files.TLSCert, files.TLSKey)
	if err != nil || !now.Add(devRenewBefore).Before(kept.Leaf.NotAfter) ||
		!slices.Equal(kept.Leaf.PermittedDNSDomains, d.permitted()) {
		if err = os.MkdirAll(d.dir, 0o755); err == nil {
			err = d.create(now)
		}
		if err == nil {
			kept, err = tls.LoadX509KeyPair(files.TLSCert, files.TLSKey)
		}
		if err != nil {
			return nil, fmt.Errorf("create dev's certificate authority: %w", err)
		}
	}
	return &devAuthority{authority: kept, permitted: d.permitted(), now: time.Now}, nil
}

// devAuthorityName is how the common name of each authority of dev begins.
const devAuthorityName = "postrider dev, "

// replaceable returns an error unless the certificate is that of an authority of dev, or both files are absent.
func (f tlsFlags) replaceable() error {
	var there string
	for _, file := range []string{f.TLSKey, f.TLSCert} {
		text, err := os.ReadFile(file)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return fmt.Errorf("read dev's certificate authority: %w", err)
		}
		there = file
		if block, _ := pem.Decode(text); block != nil && file == f.TLSCert {
			found, err := x509.ParseCertificate(block.Bytes)
			if err == nil && strings.HasPrefix(found.Subject.CommonName, devAuthorityName) {
				return nil
			}
		}
	}
	if there != "" {
		return fmt.Errorf("%s is not of an authority of postrider dev: choose another folder with --tls-dir, or move the "+
			"file", there)
	}
	return nil
}

func (d devTLS) create(now time.Time) error {
	template := &x509.Certificate{
		Subject:   pkix.Name{CommonName: devAuthorityName + strings.Join(d.permitted(), " ") + " only"},
		NotBefore: now.Add(-devClockSkew), NotAfter: now.Add(devAuthorityLasts),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
		ExtKeyUsage:                 []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		PermittedDNSDomainsCritical: true, PermittedDNSDomains: d.permitted(),
		PermittedIPRanges: []*net.IPNet{
			{IP: net.IPv4(127, 0, 0, 0).To4(), Mask: net.CIDRMask(8, 32)},
			{IP: net.IPv6loopback, Mask: net.CIDRMask(128, 128)},
		},
	}
	created, err := certify(template, nil)
	if err != nil {
		return err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(created.PrivateKey)
	if err != nil {
		return err
	}
	secret = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
	// The certificate first: by it the next run knows that both are dev's.
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: created.Certificate[0]})
	if err := local.ReplaceFile(d.files().TLSCert, 0o644, certificate); err != nil {
		return err
	}
	return local.ReplaceFile(d.files().TLSKey, 0o600, secret)
}

// certify creates a certificate with a new key; by is its authority, nil = itself.
func certify(template *x509.Certificate, by *tls.Certificate) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return nil, err
	}
	parent, signer := template, crypto.PrivateKey(key)
	if by != nil {
		parent, signer = by.Leaf, by.PrivateKey
	}
	created, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(created)
	return &tls.Certificate{Certificate: [][]byte{created}, PrivateKey: key, Leaf: leaf}, err
}

// devAuthority issues the certificates of dev's listener.
type devAuthority struct {
	authority tls.Certificate
	permitted []string
	now       func() time.Time

	mu     sync.Mutex
	issued map[string]*tls.Certificate
}

// certificate returns one for the name that a client requests, or else for this machine.
func (a *devAuthority) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	name := strings.ToLower(hello.ServerName)
	if !slices.ContainsFunc(a.permitted, func(p string) bool { return name == p || strings.HasSuffix(name, "."+p) }) {
		name = ""
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	if known := a.issued[name]; known != nil && now.Add(devCertificateLasts/2).Before(known.Leaf.NotAfter) {
		return known, nil
	}
	if a.issued == nil || len(a.issued) >= devMaxCertificates {
		a.issued = map[string]*tls.Certificate{}
	}
	names := slices.Clone(a.permitted)
	if name != "" && !slices.Contains(names, name) {
		names = append(names, name)
	}
	fresh, err := certify(&x509.Certificate{
		Subject: pkix.Name{CommonName: "postrider dev"}, NotBefore: now.Add(-devClockSkew),
		NotAfter: now.Add(devCertificateLasts), BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, DNSNames: names,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}, &a.authority)
	if err == nil {
		a.issued[name] = fresh
	}
	return fresh, err
}
