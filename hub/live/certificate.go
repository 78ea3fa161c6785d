// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"crypto/tls"
	"fmt"
	"sync"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
)

// ServingCertificate is the certificate that the server shows. It is asked for
// again whenever the API machinery looks, which is every minute and after
// Refresh: one that was renewed meanwhile is shown before the old one ends.
type ServingCertificate struct {
	issue func() (certPEM, keyPEM []byte, err error)

	mu            sync.Mutex
	certPEM, key  []byte                         // guarded by mu; the last good ones
	notifications []dynamiccertificates.Listener // guarded by mu
}

var _ dynamiccertificates.CertKeyContentProvider = &ServingCertificate{}

// NewServingCertificate takes its certificates from issue, which returns the
// chain and the key in PEM, and fails when the first cannot be had.
func NewServingCertificate(issue func() (certPEM, keyPEM []byte, err error)) (*ServingCertificate, error) {
	c := &ServingCertificate{issue: issue}
	if err := c.renew(); err != nil {
		return nil, err
	}
	return c, nil
}

// renew keeps what issue returns. On an error the present certificate stays.
func (c *ServingCertificate) renew() error {
	certPEM, keyPEM, err := c.issue()
	if err != nil {
		return fmt.Errorf("serving certificate: %w", err)
	}
	if _, err := tls.X509KeyPair(certPEM, keyPEM); err != nil {
		return fmt.Errorf("serving certificate: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.certPEM, c.key = certPEM, keyPEM
	return nil
}

// Refresh asks for the certificate again and has new connections use it. On an
// error the present one stays.
func (c *ServingCertificate) Refresh() error {
	if err := c.renew(); err != nil {
		return err
	}
	c.mu.Lock()
	listeners := c.notifications
	c.mu.Unlock()
	for _, l := range listeners {
		l.Enqueue()
	}
	return nil
}

// Name implements dynamiccertificates.CertKeyContentProvider.
func (*ServingCertificate) Name() string { return "live API serving certificate" }

// CurrentCertKeyContent returns the certificate to serve, renewed if it is due.
func (c *ServingCertificate) CurrentCertKeyContent() (certPEM, keyPEM []byte) {
	// The interface has no way to report an error; the last good one serves.
	_ = c.renew()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.certPEM, c.key
}

// AddListener adds a listener that Refresh notifies.
func (c *ServingCertificate) AddListener(l dynamiccertificates.Listener) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.notifications = append(c.notifications, l)
}
