// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package workagent

import (
	"crypto/tls"
	"fmt"
	"slices"
)

// defaultTLSVersion is that of --tls-min-version.
const defaultTLSVersion = "VersionTLS12"

// tlsVersions by the names that Kubernetes' components have for them.
func tlsVersions() map[string]uint16 {
	return map[string]uint16{
		"": tls.VersionTLS12, "VersionTLS10": tls.VersionTLS10, "VersionTLS11": tls.VersionTLS11, defaultTLSVersion: tls.VersionTLS12, "VersionTLS13": tls.VersionTLS13,
	}
}

// parseTLS reads the two flags. Those of crypto/tls that are not secure are the
// operator's to ask for.
func parseTLS(version string, suites []string) (TLS, error) {
	least, ok := tlsVersions()[version]
	if !ok {
		return TLS{}, fmt.Errorf("flag --tls-min-version: %q is not known: VersionTLS10, VersionTLS11, VersionTLS12 and VersionTLS13 are", version)
	}
	out := TLS{MinVersion: least}
	known := slices.Concat(tls.CipherSuites(), tls.InsecureCipherSuites())
	for _, name := range suites {
		i := slices.IndexFunc(known, func(s *tls.CipherSuite) bool { return s.Name == name })
		if i < 0 {
			return TLS{}, fmt.Errorf("flag --tls-cipher-suites: %q is not known; names are as TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", name)
		}
		out.CipherSuites = append(out.CipherSuites, known[i].ID)
	}
	return out, nil
}
