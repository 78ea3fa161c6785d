// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package version

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	release "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
	"github.com/spokelet/spokelet/workers/script"
	"github.com/spokelet/spokelet/workers/store"
)

const (
	// descriptionPrefix is what the keys of descriptions begin with. No id of an account begins with an
	// underscore, so that nobody who may write an account's prefix writes descriptions.
	descriptionPrefix = "_versions"
	descriptionSuffix = ".json"
	// maxSummary bounds the first line of a description, in bytes.
	maxSummary = 32 << 10
	// maxDescription bounds a description, in bytes. No more than 900 KiB of settings can be
	// built.
	maxDescription = 1 << 20
)

func descriptionFolder(account, script string) string {
	return descriptionPrefix + "/" + scriptFolder(account, script)
}

func descriptionKey(account, script, id string) string {
	return descriptionFolder(account, script) + "/" + id + descriptionSuffix
}

// settings are the second line of a description.
type settings struct {
	Script      release.Script `json:"script"`
	SecretNames []string       `json:"secretNames,omitempty"`
}

// encode writes a description: a line with the summary, of which lists read no more, and one
// with the settings.
func encode(v Version) ([]byte, error) {
	var out bytes.Buffer
	lines := json.NewEncoder(&out)
	if err := lines.Encode(v.Summary); err != nil {
		return nil, err
	}
	if out.Len() > maxSummary {
		return nil, fmt.Errorf("%w: its author, message and tag have %d bytes, and the limit is %d", store.ErrTooLarge, out.Len(), maxSummary)
	}
	if err := lines.Encode(settings{Script: v.Script, SecretNames: v.SecretNames}); err != nil {
		return nil, err
	}
	if out.Len() > maxDescription {
		return nil, fmt.Errorf("%w: its settings have %d bytes, and the limit is %d", store.ErrTooLarge, out.Len(), maxDescription)
	}
	return out.Bytes(), nil
}

// decodeSummary reads the beginning of a description.
func decodeSummary(raw []byte, id string) (Summary, error) {
	var s Summary
	if err := json.NewDecoder(bytes.NewReader(raw)).Decode(&s); err != nil {
		return Summary{}, fmt.Errorf("what is stored is no description: %w", err)
	}
	if s.ID != id {
		return Summary{}, fmt.Errorf("what is stored is the description of version %q", s.ID)
	}
	return s, nil
}

// decode reads a description, and believes nothing that [Repository.Save] would not have
// written for this version.
func (r *Repository) decode(raw []byte, account, name, id string) (Version, error) {
	if len(raw) > maxDescription {
		return Version{}, errors.New("what is stored is too large for a description")
	}
	first, rest, _ := bytes.Cut(raw, []byte("\n"))
	summary, err := decodeSummary(first, id)
	if err != nil {
		return Version{}, err
	}
	var s settings
	if err := json.Unmarshal(rest, &s); err != nil {
		return Version{}, fmt.Errorf("what is stored is no description: %w", err)
	}
	if s.Script.ScriptName != name {
		return Version{}, fmt.Errorf("what is stored is a version of script %q", s.Script.ScriptName)
	}
	for _, url := range script.URLs(s.Script) {
		if _, err := script.Prefix(url, r.bucket, account); err != nil {
			return Version{}, err
		}
	}
	summary.Summarize(r.bucket, account, s.Script)
	return Version{Summary: summary, Script: s.Script, SecretNames: s.SecretNames}, nil
}
