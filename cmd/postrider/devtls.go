package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"postrider/internal/local"
)

const (
	devCertificateLasts = 397 * 24 * time.Hour // clients reject more than 398 days
	devRenewBefore      = 30 * 24 * time.Hour
	devClockSkew        = time.Hour
)

// devTLS is the directory of dev's certificate. It is self-signed and for names of this machine: a client that trusts
// it trusts no other certificate, even if the key becomes known.
type devTLS struct{ dir string }

func (d devTLS) files() tlsFlags {
	return tlsFlags{TLSCert: filepath.Join(d.dir, "cert.pem"), TLSKey: filepath.Join(d.dir, "key.pem")}
}

// prepare creates the certificate if it is missing, does not match its key, or expires soon.
func (d devTLS) prepare(now time.Time) error {
	files := d.files()
	kept, err := tls.LoadX509KeyPair(files.TLSCert, files.TLSKey)
	if err == nil && now.Add(devRenewBefore).Before(kept.Leaf.NotAfter) {
		return nil
	}
	if err = os.MkdirAll(d.dir, 0o755); err == nil {
		err = d.create(now)
	}
	if err != nil {
		return fmt.Errorf("create dev's certificate: %w", err)
	}
	return nil
}

func (d devTLS) create(now time.Time) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	number, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: number, Subject: pkix.Name{CommonName: "postrider dev, this machine only"},
		NotBefore: now.Add(-devClockSkew), NotAfter: now.Add(devCertificateLasts), BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	secret = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
	if err := local.ReplaceFile(d.files().TLSKey, 0o600, secret); err != nil {
		return err
	}
	certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})
	return local.ReplaceFile(d.files().TLSCert, 0o644, certificate)
}
