// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"helm.sh/helm/v4/pkg/repo/v1"
	"sigs.k8s.io/yaml"

	"github.com/spokelet/spokelet/agent/helm/message"
)

var (
	errIndex  = errors.New("the index of the repository cannot be read")
	errDigest = errors.New("the archive is not the one of the index: its digest differs")
)

// isArchive reports whether a URL is of an archive, not of a repository.
func isArchive(u *url.URL) bool {
	return strings.HasSuffix(u.Path, ".tgz") || strings.HasSuffix(u.Path, ".tar.gz")
}

// fetchFromRepository reads the archive that the index of a repository names
// (https://helm.sh/docs/topics/chart_repository).
func (s *Source) fetchFromRepository(ctx context.Context, u *url.URL, c message.Chart) ([]byte, error) {
	raw, err := s.download(ctx, u.JoinPath("index.yaml"), maxIndex)
	if err != nil {
		return nil, fmt.Errorf("index of the repository: %w", err)
	}
	index := &repo.IndexFile{}
	if err := yaml.Unmarshal(raw, index); err != nil {
		return nil, fmt.Errorf("%w: it is no YAML of an index", errIndex)
	}
	dropInvalid(index)
	index.SortEntries()
	version, err := index.Get(c.Name, c.Version)
	if err != nil {
		return nil, fmt.Errorf("version %q is not in the repository: %w", c.Version, err)
	}
	at, err := archiveURL(u, version)
	if err != nil {
		return nil, err
	}
	var archive []byte
	if at.Scheme == schemeOCI {
		archive, err = s.fetchFromRegistry(ctx, at, message.Chart{Version: version.Version})
	} else {
		archive, err = s.download(ctx, at, maxArchive)
	}
	if err != nil {
		return nil, fmt.Errorf("archive %s: %w", at.Redacted(), err)
	}
	return archive, checkDigest(archive, version.Digest)
}

// dropInvalid removes invalid entries: the index is not trusted.
func dropInvalid(index *repo.IndexFile) {
	for name, versions := range index.Entries {
		var valid repo.ChartVersions
		for _, version := range versions {
			if version != nil && version.Metadata != nil {
				valid = append(valid, version)
			}
		}
		index.Entries[name] = valid
	}
}

// archiveURL returns the URL of a version, which may be relative to that of the repository.
func archiveURL(repository *url.URL, version *repo.ChartVersion) (*url.URL, error) {
	if len(version.URLs) == 0 {
		return nil, fmt.Errorf("%w: version %s has no URL", errIndex, version.Version)
	}
	at, err := url.Parse(version.URLs[0])
	if err != nil {
		return nil, fmt.Errorf("%w: the URL of version %s is none", errIndex, version.Version)
	}
	base := *repository
	base.Path, base.RawPath = strings.TrimSuffix(base.Path, "/")+"/", ""
	at = base.ResolveReference(at)
	return at, checkURL(at)
}

// checkDigest compares an archive with the SHA-256 in the index, if there is one.
func checkDigest(archive []byte, digest string) error {
	sum := sha256.Sum256(archive)
	if digest != "" && !strings.EqualFold(strings.TrimPrefix(digest, "sha256:"), hex.EncodeToString(sum[:])) {
		return errDigest
	}
	return nil
}
