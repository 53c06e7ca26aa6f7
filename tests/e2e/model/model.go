// Package model is a model that says what a test has written down: the turns of one
// task, streamed as a real one's server does, with the tool calls of the agent that
// asks. It counts turns, and keeps what it was asked.
package model

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
)

// A Turn is one answer: a call of a tool, or the last words.
type Turn struct {
	Tool string
	Args map[string]any
	Text string
}

// A Model answers POST /v1/chat/completions and /v1/responses (OpenAI),
// /v1/messages (Anthropic) and …:streamGenerateContent (Gemini) with Turns in their order. One that is asked without tools is asked
// for something else, a title say, and answers with a word.
type Model struct {
	Turns []Turn
	Key   string // that has to come with each request

	mu      sync.Mutex
	bodies  []string
	streams int
	refused int
}

// Asked are the bodies of the requests that got a turn, in their order.
func (m *Model) Asked() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]string{}, m.bodies...)
}

// Streamed are the events that were sent and flushed, and Refused the requests
// without the key.
func (m *Model) Streamed() (events, refused int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.streams, m.refused
}

type object = map[string]any

// ServeHTTP is one request.
func (m *Model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost { // as a web socket asks
		http.Error(w, `{"error":{"message":"nothing is here"}}`, http.StatusNotFound)
		return
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, 8<<20))
	if err != nil {
		return // the client is gone
	}
	if r.Header.Get("Authorization") != "Bearer "+m.Key && r.Header.Get("X-Api-Key") != m.Key && r.Header.Get("X-Goog-Api-Key") != m.Key {
		m.mu.Lock()
		m.refused++
		m.mu.Unlock()
		http.Error(w, `{"error":{"message":"no key"}}`, http.StatusUnauthorized)
		return
	}
	var q struct {
		Stream bool  `json:"stream"`
		Tools  []any `json:"tools"`
	}
	if err := json.Unmarshal(body, &q); err != nil {
		http.Error(w, `{"error":{"message":"no JSON"}}`, http.StatusBadRequest)
		return
	}
	turn := Turn{Text: "word"}
	if len(q.Tools) > 0 {
		m.mu.Lock()
		if n := len(m.bodies); n < len(m.Turns) {
			turn = m.Turns[n]
		}
		m.bodies = append(m.bodies, string(body))
		m.mu.Unlock()
	}
	switch {
	case strings.HasSuffix(r.URL.Path, "/chat/completions") && q.Stream:
		m.completions(w, turn)
	case strings.HasSuffix(r.URL.Path, "/messages") && q.Stream:
		m.messages(w, turn)
	case strings.HasSuffix(r.URL.Path, "/responses") && q.Stream:
		m.responses(w, turn)
	case strings.HasSuffix(r.URL.Path, ":streamGenerateContent"):
		m.generate(w, turn)
	default:
		http.Error(w, `{"error":{"type":"not_found_error","message":"nothing is here"}}`, http.StatusNotFound)
	}
}

// event sends one and flushes it.
func (m *Model) event(w http.ResponseWriter, name string, data any) {
	text, err := json.Marshal(data)
	if err != nil {
		panic(err) // of a test's own values
	}
	if name != "" {
		fmt.Fprintf(w, "event: %s\n", name)
	}
	fmt.Fprintf(w, "data: %s\n\n", text)
	if f, ok := w.(http.Flusher); ok {
		f.Flush()
	}
	m.mu.Lock()
	m.streams++
	m.mu.Unlock()
}

// pieces are a text in parts, as a stream has them.
func pieces(s string) []string {
	var out []string
	for len(s) > 7 {
		out, s = append(out, s[:7]), s[7:]
	}
	return append(out, s)
}

func arguments(t Turn) string {
	text, err := json.Marshal(t.Args)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// completions is the form of OpenAI's chat completions.
func (m *Model) completions(w http.ResponseWriter, t Turn) {
	w.Header().Set("Content-Type", "text/event-stream")
	chunk := func(delta object, finish any) {
		m.event(w, "", object{"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": []object{{"index": 0, "delta": delta, "finish_reason": finish}}})
	}
	chunk(object{"role": "assistant"}, nil)
	finish := "stop"
	if t.Tool != "" {
		finish = "tool_calls"
		chunk(object{"tool_calls": []object{{"index": 0, "id": fmt.Sprintf("call_%d", len(m.Asked())), "type": "function", "function": object{"name": t.Tool, "arguments": ""}}}}, nil)
		for _, p := range pieces(arguments(t)) {
			chunk(object{"tool_calls": []object{{"index": 0, "function": object{"arguments": p}}}}, nil)
		}
	} else {
		for _, p := range pieces(t.Text) {
			chunk(object{"content": p}, nil)
		}
	}
	chunk(object{}, finish)
	m.event(w, "", object{"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": []object{}, "usage": object{"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}})
	fmt.Fprint(w, "data: [DONE]\n\n")
}

// messages is the form of Anthropic's messages.
func (m *Model) messages(w http.ResponseWriter, t Turn) {
	w.Header().Set("Content-Type", "text/event-stream")
	event := func(name string, v object) {
		v["type"] = name
		m.event(w, name, v)
	}
	event("message_start", object{"message": object{
		"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": []object{}, "stop_reason": nil, "stop_sequence": nil,
		"usage": object{"input_tokens": 1, "output_tokens": 1},
	}})
	stop := "end_turn"
	if t.Tool != "" {
		stop = "tool_use"
		event("content_block_start", object{"index": 0, "content_block": object{"type": "tool_use", "id": fmt.Sprintf("toolu_%d", len(m.Asked())), "name": t.Tool, "input": object{}}})
		for _, p := range pieces(arguments(t)) {
			event("content_block_delta", object{"index": 0, "delta": object{"type": "input_json_delta", "partial_json": p}})
		}
	} else {
		event("content_block_start", object{"index": 0, "content_block": object{"type": "text", "text": ""}})
		for _, p := range pieces(t.Text) {
			event("content_block_delta", object{"index": 0, "delta": object{"type": "text_delta", "text": p}})
		}
	}
	event("content_block_stop", object{"index": 0})
	event("message_delta", object{"delta": object{"stop_reason": stop, "stop_sequence": nil}, "usage": object{"output_tokens": 2}})
	event("message_stop", object{})
}

// responses is the form of OpenAI's responses.
func (m *Model) responses(w http.ResponseWriter, t Turn) {
	w.Header().Set("Content-Type", "text/event-stream")
	event := func(name string, v object) {
		v["type"] = name
		m.event(w, name, v)
	}
	n := len(m.Asked())
	event("response.created", object{"response": object{"id": fmt.Sprintf("r%d", n)}})
	item := object{"type": "message", "role": "assistant", "id": fmt.Sprintf("m%d", n), "content": []object{{"type": "output_text", "text": t.Text}}}
	if t.Tool != "" {
		item = object{"type": "function_call", "id": fmt.Sprintf("f%d", n), "call_id": fmt.Sprintf("call_%d", n), "name": t.Tool, "arguments": arguments(t)}
	} else {
		event("response.output_item.added", object{"output_index": 0, "item": object{"type": "message", "role": "assistant", "id": item["id"], "content": []object{}}})
		for _, p := range pieces(t.Text) {
			event("response.output_text.delta", object{"output_index": 0, "content_index": 0, "item_id": item["id"], "delta": p})
		}
	}
	event("response.output_item.done", object{"output_index": 0, "item": item})
	event("response.completed", object{"response": object{"id": fmt.Sprintf("r%d", n), "usage": object{
		"input_tokens": 1, "input_tokens_details": nil, "output_tokens": 1, "output_tokens_details": nil, "total_tokens": 2,
	}}})
}

// generate is the form of Gemini's content, streamed.
func (m *Model) generate(w http.ResponseWriter, t Turn) {
	w.Header().Set("Content-Type", "text/event-stream")
	chunk := func(part object, more object) {
		one := object{"content": object{"role": "model", "parts": []object{part}}, "index": 0}
		maps.Copy(one, more)
		m.event(w, "", object{"candidates": []object{one}, "usageMetadata": object{"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}})
	}
	if t.Tool != "" {
		chunk(object{"functionCall": object{"name": t.Tool, "args": t.Args}}, nil)
	} else {
		for _, p := range pieces(t.Text) {
			chunk(object{"text": p}, nil)
		}
	}
	chunk(object{"text": ""}, object{"finishReason": "STOP"})
}
