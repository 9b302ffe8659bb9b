package daemon

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/starling-host/starling/abi"
)

// toolDocument is a tool of a tenant.
type toolDocument struct {
	Name         string          `json:"name"`
	Description  string          `json:"description"`
	InputSchema  json.RawMessage `json:"input_schema"`
	OutputSchema json.RawMessage `json:"output_schema,omitempty"`
	Effects      []string        `json:"effects"`
	Idempotent   bool            `json:"idempotent"`
	Limits       abi.Limits      `json:"limits,omitzero"`
	Module       string          `json:"module"`
	Digest       string          `json:"digest"`
	Trusted      bool            `json:"trusted"`
}

func newToolDocument(m owned, t abi.ToolDescription) toolDocument {
	return toolDocument{
		Name: t.Name, Description: t.Description, InputSchema: json.RawMessage(t.InputSchema), OutputSchema: json.RawMessage(t.OutputSchema),
		Effects: append([]string{}, t.Effects...), Idempotent: t.Idempotent, Limits: t.Limits,
		Module: m.Name, Digest: m.Digest.String(), Trusted: m.Trusted,
	}
}

func (d *Daemon) listTools(w http.ResponseWriter, r *request) error {
	if err := parametersOf(r.Request).err; err != nil {
		return err
	}
	all, err := d.modulesOf(r.Context(), r.tenant.ID)
	if err != nil {
		return err
	}
	page := list[toolDocument]{Items: []toolDocument{}}
	for _, m := range all {
		for _, t := range m.tools {
			page.Items = append(page.Items, newToolDocument(m, t))
		}
	}
	writeJSON(w, http.StatusOK, page)
	return nil
}

// findTool returns the module of a tenant that has the tool.
func (d *Daemon) findTool(ctx context.Context, tenantID, name string) (owned, abi.ToolDescription, error) {
	all, err := d.modulesOf(ctx, tenantID)
	if err != nil {
		return owned{}, abi.ToolDescription{}, err
	}
	for _, m := range all {
		for _, t := range m.tools {
			if t.Name == name {
				return m, t, nil
			}
		}
	}
	return owned{}, abi.ToolDescription{}, notFound.plain()
}

func (d *Daemon) getTool(w http.ResponseWriter, r *request) error {
	m, t, err := d.findTool(r.Context(), r.tenant.ID, r.PathValue("name"))
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, newToolDocument(m, t))
	return nil
}

// agentDocument is an agent that runs can be made of.
type agentDocument struct {
	Name        string   `json:"name"`
	Description string   `json:"description,omitempty"`
	Provider    string   `json:"provider"`
	Model       string   `json:"model"`
	Tools       []string `json:"tools"`
}

func (d *Daemon) listAgents(w http.ResponseWriter, r *request) error {
	if err := parametersOf(r.Request).err; err != nil {
		return err
	}
	page := list[agentDocument]{Items: []agentDocument{}}
	for _, a := range d.config.Agents {
		doc := agentDocument{Name: a.Name, Description: a.Description, Provider: a.Agent.Provider.Info().ID, Model: a.Agent.Config.Model, Tools: []string{}}
		for _, t := range a.Agent.Tools {
			doc.Tools = append(doc.Tools, t.Name())
		}
		page.Items = append(page.Items, doc)
	}
	writeJSON(w, http.StatusOK, page)
	return nil
}
