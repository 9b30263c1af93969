/* SPDX-License-Identifier: Apache-2.0 */
/*
** spec_lua.c - evaluating a spec: Lua 5.4 as a notation for data. The only file that knows Lua.
**
** A spec is not trusted. What it may do:
** - text chunks only, with an environment built from a list of harmless functions. No load, require,
**   io, os, debug, coroutine or metatables (finalizers run where no hook does), no string patterns
**   (they backtrack), no table.move or utf8, no pack; nothing whose result differs between runs:
**   random numbers, pairs, addresses of tables.
** - memory up to a cap in the allocator.
** - instructions up to a budget, counted by a hook; the clock is looked at too. The hook does not run
**   inside C functions, so each of those in the list passes through guarded(), which looks at the
**   clock and bounds the work of one call. Once out of budget the hook fires on every instruction, so
**   that pcall cannot go on.
** - the parser has no hook either: source comes in small pieces, the clock is looked at for each.
**
** Constructors check their fields at once, so that a fault carries the line of the call. What they
** return is opaque userdata: Lua code cannot change it.
**
** Every message is "spec:LINE: ..." while Lua is at work; "spec" is replaced by the file's path at
** the end. The message of an inner file is complete already, and remembered: see struct box.
** Everything that may raise runs below one lua_pcall.
*/
#include "../runtime/error.h"
#include "spec_fields.h"

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { HOOK_STEP = 100, LOOP_MAX = 100000, PIECE_BYTES = 512 };

static const char CODEC[] = "codec", PRESET_TYPE[] = "preset";

struct box { /* the allocator's user data: reached from every Lua state of the evaluation */
    size_t used;
    struct spec_search *search;
    const char *stem, *source;
    size_t left;     /* of the source */
    int capped;      /* the cap refused memory, not the machine */
    kvk_error inner; /* of the preset that this one derives from */
    struct spec out;
};

static void *box_alloc(void *data, void *p, size_t old, size_t size)
{
    struct box *box = data;
    if (!p)
        old = 0; /* then `old` is the kind of object */
    if (!size) {
        box->used -= old;
        free(p);
        return NULL;
    }
    if (size > old && box->used + (size - old) > SPEC_MEMORY_BYTES) {
        box->capped = 1;
        return NULL;
    }
    void *q = realloc(p, size);
    if (q)
        box->used = box->used - old + size;
    return q;
}

static struct box *box_of(lua_State *L)
{
    void *data;
    lua_getallocf(L, &data);
    return data;
}

/* Line being executed by the nearest Lua function at `level` or above it; 0 if none. */
static int line_at(lua_State *L, int level)
{
    lua_Debug ar;
    for (; lua_getstack(L, level, &ar); level++)
        if (lua_getinfo(L, "l", &ar) && ar.currentline > 0)
            return ar.currentline;
    return 0;
}

/* Raises "spec:LINE: fault". */
static int raise(lua_State *L, const char *fault)
{
    lua_pushfstring(L, "spec:%d: %s", line_at(L, 0), fault);
    return lua_error(L);
}

/* --- limits --- */

static long long clock_ns(clockid_t id)
{
    struct timespec t;
    return clock_gettime(id, &t) ? 0 : t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int is_over(const struct spec_search *search)
{
    return search->instructions < 0 || (clock_ns(CLOCK_MONOTONIC) > search->wall_end &&
                                        clock_ns(CLOCK_THREAD_CPUTIME_ID) > search->cpu_end);
}

static void on_count(lua_State *L, lua_Debug *ar)
{
    (void)ar;
    struct spec_search *search = box_of(L)->search;
    char fault[SPEC_FAULT_MAX];
    search->instructions -= HOOK_STEP;
    if (!is_over(search))
        return;
    search->instructions = -1;
    lua_sethook(L, on_count, LUA_MASKCOUNT | LUA_MASKLINE | LUA_MASKCALL, 1);
    snprintf(fault, sizeof fault,
             "evaluation: does not end: accepted at most %d instructions and %d ms",
             SPEC_INSTRUCTIONS, SPEC_TIME_MS);
    raise(L, fault);
}

static const char *next_piece(lua_State *L, void *data, size_t *bytes)
{
    struct box *box = data;
    if (is_over(box->search))
        on_count(L, NULL);
    *bytes = box->left < PIECE_BYTES ? box->left : PIECE_BYTES;
    const char *piece = box->source;
    box->source += *bytes;
    box->left -= *bytes;
    return *bytes ? piece : NULL;
}

/* --- the environment --- */

enum guard { PLAIN, COUNTED, LONG_TABLE, PRINTED, FORMATTED };

struct allowed {
    const char *name;
    enum guard guard;
};

/* error and assert need no guard: they do next to nothing. */
static const struct allowed base_names[] = {
    {"assert", PLAIN},   {"error", PLAIN},    {"ipairs", PLAIN},     {"pcall", PLAIN},
    {"rawequal", PLAIN}, {"rawget", PLAIN},   {"rawlen", PLAIN},     {"rawset", PLAIN},
    {"select", PLAIN},   {"tonumber", PLAIN}, {"tostring", PRINTED}, {"type", PLAIN},
    {"xpcall", PLAIN},   {NULL, PLAIN}};
static const struct allowed table_names[] = {
    {"concat", LONG_TABLE}, {"insert", LONG_TABLE}, {"pack", PLAIN}, {"remove", LONG_TABLE},
    {"sort", LONG_TABLE},   {"unpack", LONG_TABLE}, {NULL, PLAIN}};
static const struct allowed string_names[] = {
    {"byte", PLAIN},  {"char", PLAIN},    {"format", FORMATTED}, {"len", PLAIN},   {"lower", PLAIN},
    {"rep", COUNTED}, {"reverse", PLAIN}, {"sub", PLAIN},        {"upper", PLAIN}, {NULL, PLAIN}};
static const struct allowed math_names[] = {
    {"abs", PLAIN},   {"acos", PLAIN},       {"asin", PLAIN},      {"atan", PLAIN},
    {"ceil", PLAIN},  {"cos", PLAIN},        {"deg", PLAIN},       {"exp", PLAIN},
    {"floor", PLAIN}, {"fmod", PLAIN},       {"huge", PLAIN},      {"log", PLAIN},
    {"max", PLAIN},   {"maxinteger", PLAIN}, {"min", PLAIN},       {"mininteger", PLAIN},
    {"modf", PLAIN},  {"pi", PLAIN},         {"rad", PLAIN},       {"sin", PLAIN},
    {"sqrt", PLAIN},  {"tan", PLAIN},        {"tointeger", PLAIN}, {"type", PLAIN},
    {"ult", PLAIN},   {NULL, PLAIN}};

/* Tables and functions print as addresses, which differ between runs. */
static void check_printed(lua_State *L, int first)
{
    for (int i = first; i <= lua_gettop(L); i++)
        if (lua_type(L, i) > LUA_TSTRING || lua_type(L, i) == LUA_TLIGHTUSERDATA)
            luaL_argerror(L, i, "a string, number, boolean or nil expected");
}

static void check_format(lua_State *L)
{
    check_printed(L, 2);
    const char *p = luaL_checkstring(L, 1);
    while ((p = strchr(p, '%'))) {
        p += 1 + strspn(p + 1, "-+ #0123456789.");
        if (*p == 'p')
            luaL_argerror(L, 1, "%p is not allowed");
        p += *p == '%';
    }
}

static void check_long_table(lua_State *L)
{
    /* {[1]=1, [2]=1, [4]=1 ... [1<<61]=1} has length 2^61 and few elements to pay for */
    luaL_checktype(L, 1, LUA_TTABLE);
    if (lua_rawlen(L, 1) > LOOP_MAX)
        luaL_argerror(L, 1, "table too long");
}

/* Calls a library function in this frame, so that its messages name the caller's line. */
static int guarded(lua_State *L)
{
    lua_CFunction original = lua_tocfunction(L, lua_upvalueindex(1));
    if (is_over(box_of(L)->search))
        on_count(L, NULL);
    switch ((enum guard)lua_tointeger(L, lua_upvalueindex(2))) {
    case COUNTED: /* an empty string 2^62 times needs no memory but never returns */
        if (luaL_checkinteger(L, 2) > LOOP_MAX)
            luaL_argerror(L, 2, "count too large");
        break;
    case LONG_TABLE: check_long_table(L); break;
    case PRINTED: check_printed(L, 1); break;
    case FORMATTED: check_format(L); break;
    case PLAIN: break;
    }
    return original(L);
}

/* Copies the allowed names of the library at the top of the stack into the table below it; pops the
** library. */
static void allow(lua_State *L, const struct allowed *names)
{
    for (; names->name; names++) {
        lua_getfield(L, -1, names->name);
        if (lua_iscfunction(L, -1)) {
            lua_pushinteger(L, names->guard);
            lua_pushcclosure(L, guarded, 2);
        }
        lua_setfield(L, -3, names->name);
    }
    lua_pop(L, 1);
}

static void allow_library(lua_State *L, const char *name, lua_CFunction open,
                          const struct allowed *names)
{
    lua_newtable(L);
    luaL_requiref(L, name, open, 0);
    allow(L, names);
    lua_setfield(L, -2, name);
}

/* --- reading values --- */

/* The value at `index` for a message. Allocates nothing. */
static void describe(lua_State *L, int index, char *out, size_t cap)
{
    size_t length;
    const char *text;
    switch (lua_type(L, index)) {
    case LUA_TNIL:
    case LUA_TNONE: snprintf(out, cap, "nil"); break;
    case LUA_TBOOLEAN: snprintf(out, cap, "%s", lua_toboolean(L, index) ? "true" : "false"); break;
    case LUA_TNUMBER:
        if (lua_isinteger(L, index))
            snprintf(out, cap, "%lld", (long long)lua_tointeger(L, index));
        else if (lua_tonumber(L, index) != lua_tonumber(L, index))
            snprintf(out, cap, "nan"); /* printf may show its sign */
        else
            snprintf(out, cap, "%.9g", (double)lua_tonumber(L, index));
        break;
    case LUA_TSTRING:
        text = lua_tolstring(L, index, &length);
        spec_printable(text, length, out + 1, cap - 2);
        *out = '"';
        memcpy(out + strlen(out), "\"", 2);
        break;
    case LUA_TUSERDATA:
        snprintf(out, cap, "a %s", luaL_testudata(L, index, CODEC) ? CODEC : PRESET_TYPE);
        break;
    default: snprintf(out, cap, "a %s", luaL_typename(L, index));
    }
}

static int refuse(lua_State *L, const char *where, const char *name, int index,
                  const char *accepted)
{
    char value[48], fault[SPEC_FAULT_MAX];
    describe(L, index, value, sizeof value);
    snprintf(fault, sizeof fault, "%s%s%s: %s: accepted %s", where, *where && *name ? "." : "",
             name, value, accepted);
    return raise(L, fault);
}

/* A string without NUL bytes, or NULL. */
static const char *plain_string(lua_State *L, int index)
{
    size_t length;
    if (lua_type(L, index) != LUA_TSTRING)
        return NULL;
    const char *text = lua_tolstring(L, index, &length);
    return strlen(text) == length ? text : NULL;
}

/* Position of the word at `index` in `words`, or raises. */
static int read_word(lua_State *L, const char *where, const char *name, int index,
                     const char *words, const char *accepted)
{
    const char *text = plain_string(L, index);
    int word = text ? spec_word_index(words, text) : -1;
    return word >= 0 ? word : refuse(L, where, name, index, accepted);
}

/* Refuses keys outside `known` ("a, b, c"). Of several the first by name is reported: tables have
** no order. */
static void check_keys(lua_State *L, const char *where, int table, const char *known,
                       int (*is_known)(const char *, int), int kind)
{
    char key[48], worst[48] = "", value[48], worst_value[48] = "", fault[SPEC_FAULT_MAX];
    lua_pushnil(L);
    while (lua_next(L, table)) {
        const char *text = plain_string(L, -2);
        if (!text || !is_known(text, kind)) {
            if (text)
                spec_printable(text, strlen(text), key, sizeof key);
            else
                describe(L, -2, key, sizeof key);
            describe(L, -1, value, sizeof value);
            if (!*worst || strcmp(key, worst) < 0) {
                memcpy(worst, key, sizeof worst);
                memcpy(worst_value, value, sizeof worst_value);
            }
        }
        lua_pop(L, 1);
    }
    if (*worst) {
        snprintf(fault, sizeof fault, "%s.%s: %s: accepted keys %s", where, worst, worst_value,
                 known);
        raise(L, fault);
    }
}

/* --- codecs --- */

static int is_codec_key(const char *key, int kind)
{
    const struct spec_field *field;
    for (int i = 0; (field = spec_field(i)); i++)
        if ((int)field->kind == kind && !strcmp(field->name, key))
            return 1;
    return 0;
}

static void check_codec_keys(lua_State *L, const char *where, int table, enum codec_kind kind)
{
    char known[160] = "";
    const struct spec_field *field;
    for (int i = 0; (field = spec_field(i)); i++)
        if (field->kind == kind) {
            size_t used = strlen(known);
            snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "", field->name);
        }
    check_keys(L, where, table, known, is_codec_key, (int)kind);
}

static void read_centroids(lua_State *L, const char *where, const struct spec_field *field,
                           struct codec *codec)
{
    char fault[SPEC_FAULT_MAX], name[32];
    const char *text = plain_string(L, -1);
    memset(codec->centroids, 0, sizeof codec->centroids);
    codec->ncentroids = 0;
    if (text && !strcmp(text, "lloyd_max"))
        return;
    if (!lua_istable(L, -1) || lua_rawlen(L, -1) == 0)
        refuse(L, where, field->name, -1, field->accepted);
    int numbers = 0, keys = 0;
    for (int type = LUA_TNUMBER; numbers <= SPEC_MAX_CENTROIDS; numbers++) {
        type = lua_rawgeti(L, -1, numbers + 1);
        if (type == LUA_TNIL) {
            lua_pop(L, 1);
            break;
        }
        snprintf(name, sizeof name, "%s[%d]", field->name, numbers + 1);
        if (type != LUA_TNUMBER)
            refuse(L, where, name, -1, "-1..1");
        if (!spec_centroid_add(where, codec, (double)lua_tonumber(L, -1), fault))
            raise(L, fault);
        lua_pop(L, 1);
    }
    for (lua_pushnil(L); lua_next(L, -2); keys++)
        lua_pop(L, 1);
    if (keys != numbers)
        refuse(L, where, field->name, -1, "a table of numbers without holes or other keys");
}

/* Reads the field at the top of the stack into the draft, or raises. */
static void read_field(lua_State *L, const char *where, const struct spec_field *field,
                       struct spec_draft *draft)
{
    int value = 0;
    switch (field->type) {
    case FIELD_CENTROIDS: read_centroids(L, where, field, &draft->codec); return;
    case FIELD_WORD:
        value = read_word(L, where, field->name, -1, field->words, field->accepted);
        break;
    case FIELD_CONSTANT:
        if (lua_type(L, -1) != LUA_TNUMBER || !spec_constant(field, lua_tonumber(L, -1), &value))
            refuse(L, where, field->name, -1, field->accepted);
        break;
    case FIELD_OPTION:
    case FIELD_BOOL:
        if (!lua_isboolean(L, -1))
            refuse(L, where, field->name, -1, field->accepted);
        value = lua_toboolean(L, -1);
        break;
    case FIELD_INT: {
        int is_integer = 0;
        lua_Integer wide = lua_type(L, -1) == LUA_TNUMBER ? lua_tointegerx(L, -1, &is_integer) : 0;
        if (!is_integer || wide < field->low || wide > field->high)
            refuse(L, where, field->name, -1, field->accepted);
        value = (int)wide;
        break;
    }
    }
    spec_field_set(field, draft, value);
}

/* Reads the fields in the table; those it lacks keep their value (partial) or get their fallback.
** */
static void read_codec(lua_State *L, const char *where, int table, int partial,
                       struct spec_draft *draft)
{
    const struct spec_field *field;
    char fault[SPEC_FAULT_MAX];
    check_codec_keys(L, where, table, draft->codec.kind);
    for (int i = 0; (field = spec_field(i)); i++) {
        if (field->kind != draft->codec.kind)
            continue;
        lua_pushstring(L, field->name);
        lua_rawget(L, table);
        if (!lua_isnil(L, -1))
            read_field(L, where, field, draft);
        else if (!partial && field->fallback == FIELD_REQUIRED)
            refuse(L, where, field->name, -1, field->accepted);
        else if (!partial)
            spec_field_set(field, draft, field->fallback);
        lua_pop(L, 1);
    }
    if (!spec_draft_close(where, draft, fault))
        raise(L, fault);
}

/* codebook{...}, affine{...}, ...: the kind is an upvalue. */
static int make_codec(lua_State *L)
{
    enum codec_kind kind = (enum codec_kind)lua_tointeger(L, lua_upvalueindex(1));
    struct spec_draft draft;
    char name[32];
    spec_word_at(SPEC_KIND_WORDS, (int)kind, name, sizeof name);
    if (!lua_istable(L, 1))
        refuse(L, name, "", 1, "a table of fields");
    if (lua_gettop(L) > 1)
        refuse(L, name, "", 2, "one table only");
    spec_draft_open(kind, &draft);
    read_codec(L, name, 1, 0, &draft);
    *(struct codec *)lua_newuserdatauv(L, sizeof draft.codec, 0) = draft.codec;
    luaL_setmetatable(L, CODEC);
    return 1;
}

/* --- presets --- */

static int is_preset_key(const char *key, int kind)
{
    (void)kind;
    return *spec_preset_accepted(key) != 0;
}

/* Side of a preset at the top of the stack: a codec, or when deriving a table of changes to the one
** there is. */
static void read_side(lua_State *L, const char *side, int derived, struct codec *codec)
{
    const struct codec *given = luaL_testudata(L, -1, CODEC);
    if (given) {
        *codec = *given;
    } else if (derived && lua_istable(L, -1)) {
        struct spec_draft draft = {*codec, FIELD_BY_RULE};
        if (lua_getfield(L, -1, "rule") != LUA_TNIL)
            draft.codec.group = FIELD_BY_RULE; /* a new rule brings its own group */
        lua_pop(L, 1);
        read_codec(L, side, lua_gettop(L), 1, &draft);
        *codec = draft.codec;
    } else {
        char accepted[128];
        snprintf(accepted, sizeof accepted, "%s%s", spec_preset_accepted(side),
                 derived ? " or a table of changes" : "");
        refuse(L, side, "", -1, accepted);
    }
}

static void read_layouts(lua_State *L, struct spec *spec)
{
    const char *accepted = spec_preset_accepted("layouts");
    int keys = 0, n = 0;
    if (!lua_istable(L, -1))
        refuse(L, "layouts", "", -1, accepted);
    for (lua_pushnil(L); lua_next(L, -2); keys++)
        lua_pop(L, 1);
    if (keys > 8) /* more than can differ, and not worth reading */
        refuse(L, "layouts", "", -1, accepted);
    memset(spec->layouts, 0, sizeof spec->layouts);
    for (; lua_rawgeti(L, -1, n + 1) != LUA_TNIL; n++) {
        const char *text = plain_string(L, -1);
        int layout = layout_from_name(text);
        if (layout < 0)
            refuse(L, "layouts", "", -1, "aos, soa, native");
        for (int i = 0; i < n; i++)
            if (spec->layouts[i] == (enum layout)layout)
                refuse(L, "layouts", "", -1, "each layout once");
        spec->layouts[n] = (enum layout)layout; /* n < LAYOUT_COUNT: they differ */
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
    if (keys != n)
        refuse(L, "layouts", "", -1, "a list without holes or other keys");
    spec->nlayouts = n;
}

/* Reads the fields of the table at stack index 1 or 2 into *spec and pushes the result. */
static int read_preset(lua_State *L, int table, int derived, struct spec *spec)
{
    char fault[SPEC_FAULT_MAX];
    check_keys(L, "preset", table, "key, value, layouts, query, name", is_preset_key, 0);
    if (lua_getfield(L, table, "key") != LUA_TNIL || !derived)
        read_side(L, "key", derived, &spec->key);
    if (lua_getfield(L, table, "value") != LUA_TNIL || !derived)
        read_side(L, "value", derived, &spec->value);
    if (lua_getfield(L, table, "layouts") != LUA_TNIL)
        read_layouts(L, spec);
    else
        spec_inherit_layouts(spec);
    if (lua_getfield(L, table, "query") != LUA_TNIL)
        spec->query = (enum query_format)read_word(L, "query", "", -1, SPEC_QUERY_WORDS,
                                                   spec_preset_accepted("query"));
    if (lua_getfield(L, table, "name") != LUA_TNIL) {
        const char *name = plain_string(L, -1);
        if (!name || !spec_check_name(name, fault))
            refuse(L, "name", "", -1, spec_preset_accepted("name"));
        snprintf(spec->name, sizeof spec->name, "%s", name);
    }
    if (!spec_check_layouts(spec, fault))
        raise(L, fault);
    *(struct spec *)lua_newuserdatauv(L, sizeof *spec, 0) = *spec;
    luaL_setmetatable(L, PRESET_TYPE);
    return 1;
}

/* The preset of that name, without its name: the file that derives from it gives its own. */
static int find_base(lua_State *L)
{
    struct spec_search *search = box_of(L)->search;
    struct spec spec;
    kvk_error err;
    const char *name = plain_string(L, 1);
    if (!name)
        refuse(L, "preset", "", 1, "a name of 1..63 characters of [a-z0-9_]");
    if (is_over(search))
        on_count(L, NULL);
    memset(&spec, 0, sizeof spec);
    search->depth++;
    kvk_status status = spec_find(name, search, &spec, &err);
    search->depth--;
    if (status) {
        if (!strncmp(err.text, "preset: ", 8)) /* said about the name: the fault is in this file */
            return raise(L, err.text);
        box_of(L)->inner = err;
        lua_pushstring(L, err.text);
        return lua_error(L);
    }
    spec.name[0] = 0;
    *(struct spec *)lua_newuserdatauv(L, sizeof spec, 0) = spec;
    luaL_setmetatable(L, PRESET_TYPE);
    return 1;
}

/* preset{...} makes one, preset "name" finds one. */
static int make_preset(lua_State *L)
{
    struct spec spec;
    if (lua_gettop(L) > 1)
        refuse(L, "preset", "", 2, "one table or name only");
    if (lua_type(L, 1) == LUA_TSTRING)
        return find_base(L);
    if (!lua_istable(L, 1))
        refuse(L, "preset", "", 1, "a table of fields or the name of a preset");
    memset(&spec, 0, sizeof spec);
    spec.nlayouts = 1; /* aos */
    return read_preset(L, 1, 0, &spec);
}

/* preset "name" {...}: calling a preset derives from it. */
static int derive(lua_State *L)
{
    struct spec spec = *(const struct spec *)luaL_checkudata(L, 1, PRESET_TYPE);
    if (!lua_istable(L, 2))
        refuse(L, "preset", "", 2, "a table of changes");
    if (lua_gettop(L) > 2)
        refuse(L, "preset", "", 3, "one table only");
    return read_preset(L, 2, 1, &spec);
}

/* --- evaluation --- */

static void push_environment(lua_State *L)
{
    char name[32];
    lua_newtable(L);
    luaL_requiref(L, "_G", luaopen_base, 0);
    allow(L, base_names);
    allow_library(L, LUA_TABLIBNAME, luaopen_table, table_names);
    allow_library(L, LUA_STRLIBNAME, luaopen_string, string_names);
    allow_library(L, LUA_MATHLIBNAME, luaopen_math, math_names);
    lua_pushliteral(L, ""); /* methods of strings come from the short list as well */
    lua_getmetatable(L, -1);
    lua_getfield(L, -3, LUA_STRLIBNAME);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 2);
    for (int kind = 0; kind < CODEC_KINDS; kind++) {
        spec_word_at(SPEC_KIND_WORDS, kind, name, sizeof name);
        lua_pushinteger(L, kind);
        lua_pushcclosure(L, make_codec, 1);
        lua_setfield(L, -2, name);
    }
    luaL_newmetatable(L, CODEC);
    luaL_newmetatable(L, PRESET_TYPE);
    lua_pushcfunction(L, derive);
    lua_setfield(L, -2, "__call");
    lua_pop(L, 2);
    lua_pushcfunction(L, make_preset);
    lua_setfield(L, -2, "preset");
}

/* Runs protected: from an empty state to box->out. */
static int run(lua_State *L)
{
    struct box *box = lua_touserdata(L, 1);
    char value[48], fault[SPEC_FAULT_MAX];
    push_environment(L);
    lua_sethook(L, on_count, LUA_MASKCOUNT, HOOK_STEP);
    if (lua_load(L, next_piece, box, "=spec", "t"))
        return lua_error(L);
    lua_insert(L, -2);
    lua_setupvalue(L, -2, 1); /* _ENV */
    lua_call(L, 0, 1);
    const struct spec *spec = luaL_testudata(L, -1, PRESET_TYPE);
    if (!spec) {
        describe(L, -1, value, sizeof value);
        return luaL_error(L, "spec: result: %s: accepted preset{...} or preset \"name\" {...}",
                          value);
    }
    box->out = *spec;
    if (!*box->out.name && !spec_check_name(box->stem, fault))
        return luaL_error(L, "spec: %s", fault);
    if (!*box->out.name)
        snprintf(box->out.name, sizeof box->out.name, "%s", box->stem);
    return 0;
}

/* The error value at the top of the stack as one line. Must not allocate: nothing protects us any
** more. */
static kvk_status report(lua_State *L, int rc, const char *file, kvk_error *err)
{
    char text[400];
    size_t length;
    if (rc == LUA_ERRMEM && !box_of(L)->capped)
        return ERR(err, KVK_E_MEMORY, "%s: no memory to evaluate it", file);
    if (rc == LUA_ERRMEM)
        return ERR(err, KVK_E_SPEC, "%s: memory: exhausted: accepted at most %d MiB", file,
                   SPEC_MEMORY_BYTES >> 20);
    if (lua_type(L, -1) != LUA_TSTRING) {
        describe(L, -1, text, sizeof text);
        return ERR(err, KVK_E_SPEC, "%s: error: %s: accepted a string", file, text);
    }
    const char *message = lua_tolstring(L, -1, &length);
    if (*box_of(L)->inner.text && !strcmp(message, box_of(L)->inner.text))
        return ERR(err, KVK_E_SPEC, "%s", message);
    int placed = length > 5 && !memcmp(message, "spec:", 5);
    spec_printable(message + (placed ? 4 : 0), length - (placed ? 4 : 0), text, sizeof text);
    return ERR(err, KVK_E_SPEC, "%s%s%s", file, placed ? "" : ": ", text);
}

kvk_status spec_evaluate(const char *file, const char *stem, const char *source, size_t bytes,
                         struct spec_search *search, struct spec *out, kvk_error *err)
{
    struct box box;
    memset(&box, 0, sizeof box);
    box.search = search;
    box.stem = stem;
    box.source = source;
    box.left = bytes;
    if (bytes >= 3 && !memcmp(source, "\xef\xbb\xbf", 3)) { /* byte order mark */
        box.source += 3;
        box.left -= 3;
    }
    lua_State *L = lua_newstate(box_alloc, &box);
    if (!L)
        return ERR(err, KVK_E_MEMORY, "%s: no memory to evaluate it", file);
    lua_pushcfunction(L, run);
    lua_pushlightuserdata(L, &box);
    int rc = lua_pcall(L, 1, 0, 0);
    kvk_status status = rc ? report(L, rc, file, err) : KVK_OK;
    if (!rc)
        *out = box.out;
    lua_close(L);
    return status;
}
