// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"sync"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
)

// ServingCertificate is the certificate that the server shows. It is rotated
// by Refresh, without a restart.
type ServingCertificate struct {
	issue func() (certPEM, keyPEM []byte, err error)

	mu            sync.Mutex
	certPEM, key  []byte                         // guarded by mu
	notifications []dynamiccertificates.Listener // guarded by mu
}

var _ dynamiccertificates.CertKeyContentProvider = &ServingCertificate{}

// NewServingCertificate takes its first certificate from issue, which returns
// the chain and the key in PEM.
func NewServingCertificate(issue func() (certPEM, keyPEM []byte, err error)) (*ServingCertificate, error) {
	c := &ServingCertificate{issue: issue}
	if err := c.Refresh(); err != nil {
		return nil, err
	}
	return c, nil
}

// Refresh asks for the certificate again and has new connections use it. On an
// error the present one stays.
func (c *ServingCertificate) Refresh() error {
	certPEM, keyPEM, err := c.issue()
	if err != nil {
		return fmt.Errorf("serving certificate: %w", err)
	}
	if _, err := tls.X509KeyPair(certPEM, keyPEM); err != nil {
		return fmt.Errorf("serving certificate: %w", err)
	}
	c.mu.Lock()
	changed := !bytes.Equal(c.certPEM, certPEM) || !bytes.Equal(c.key, keyPEM)
	c.certPEM, c.key = certPEM, keyPEM
	listeners := c.notifications
	c.mu.Unlock()
	if changed {
		for _, l := range listeners {
			l.Enqueue()
		}
	}
	return nil
}

// Name implements dynamiccertificates.CertKeyContentProvider.
func (*ServingCertificate) Name() string { return "live API serving certificate" }

// CurrentCertKeyContent implements dynamiccertificates.CertKeyContentProvider.
func (c *ServingCertificate) CurrentCertKeyContent() (certPEM, keyPEM []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.certPEM, c.key
}

// AddListener implements dynamiccertificates.Notifier.
func (c *ServingCertificate) AddListener(l dynamiccertificates.Listener) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.notifications = append(c.notifications, l)
}
