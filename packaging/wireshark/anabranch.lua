-- Wireshark dissector of Anabranch's outer format, version 1 (docs/wire-format.md).
--
-- Shows what can be seen without keys: headers and handshake messages. Frames are sealed.
-- Use: copy to the personal plugin folder (Help > About > Folders), or `tshark -X lua_script:anabranch.lua`.
-- Ports other than 4600: "Decode As...", or the preference "UDP and TCP port".

local anabranch = Proto("anabranch", "Anabranch")

local TYPES = { [1] = "Initiation", [2] = "Response", [3] = "Retry", [4] = "Reset", [128] = "Data" }
local MAC, TAG, RETRY_TOKEN, RESET_TOKEN, MOST_NOISE, MOST_FRAME = 16, 16, 24, 16, 1024, 16384

local f = {
    kind = ProtoField.uint8("anabranch.type", "Type", base.DEC, TYPES),
    epoch = ProtoField.uint8("anabranch.epoch", "Key epoch modulo 4", base.DEC, nil, 0x60),
    number_length = ProtoField.uint8("anabranch.number_length", "Packet number length less one", base.DEC, nil, 0x18),
    reserved = ProtoField.uint8("anabranch.reserved", "Reserved", base.DEC, nil, 0x07),
    version = ProtoField.uint8("anabranch.version", "Version"),
    features = ProtoField.uint16("anabranch.features", "Features", base.HEX),
    receiver = ProtoField.uint32("anabranch.receiver_index", "Receiver index", base.HEX),
    sender = ProtoField.uint32("anabranch.sender_index", "Sender index", base.HEX),
    path = ProtoField.uint8("anabranch.path", "Path"),
    number = ProtoField.uint32("anabranch.number", "Packet number (low bytes)"),
    sealed = ProtoField.bytes("anabranch.sealed", "Sealed frames"),
    tag = ProtoField.bytes("anabranch.tag", "Tag"),
    noise_length = ProtoField.uint16("anabranch.noise_length", "Noise message length"),
    ephemeral = ProtoField.bytes("anabranch.noise.ephemeral", "Ephemeral key"),
    static = ProtoField.bytes("anabranch.noise.static", "Static key, sealed"),
    payload = ProtoField.bytes("anabranch.noise.payload", "Payload, sealed"),
    token_length = ProtoField.uint8("anabranch.token_length", "Retry token length"),
    retry_token = ProtoField.bytes("anabranch.retry_token", "Retry token"),
    reset_token = ProtoField.bytes("anabranch.reset_token", "Reset token"),
    mac = ProtoField.bytes("anabranch.mac", "Mac"),
    length = ProtoField.uint16("anabranch.length", "Datagram length"),
}
anabranch.fields = f

local malformed = ProtoExpert.new("anabranch.malformed", "Does not follow the format", expert.group.MALFORMED, expert.severity.ERROR)
local other_version = ProtoExpert.new("anabranch.other_version", "Of another version", expert.group.PROTOCOL, expert.severity.WARN)
anabranch.experts = { malformed, other_version }

anabranch.prefs.port = Pref.uint("UDP and TCP port", 4600, "Port of the gateway")

local function index_text(range)
    return string.format("%08x", range:uint())
end

local function check_version(range, tree)
    if range:uint() ~= 1 then
        tree:add_proto_expert_info(other_version)
    end
end

local function data(buffer, tree)
    local first = buffer(0, 1):uint()
    local length = bit.band(bit.rshift(first, 3), 3) + 1
    local header = 6 + length
    if bit.band(first, 7) ~= 0 or length > 3 or buffer:len() <= header + TAG then
        return nil
    end
    tree:add(f.epoch, buffer(0, 1))
    tree:add(f.number_length, buffer(0, 1))
    tree:add(f.receiver, buffer(1, 4))
    tree:add(f.path, buffer(5, 1))
    tree:add(f.number, buffer(6, length))
    tree:add(f.sealed, buffer(header, buffer:len() - header - TAG))
    tree:add(f.tag, buffer(buffer:len() - TAG, TAG))
    return string.format("Data to %s, path %d, number ..%d, epoch %d, %d bytes sealed", index_text(buffer(1, 4)),
        buffer(5, 1):uint(), buffer(6, length):uint(), bit.band(bit.rshift(first, 5), 3), buffer:len() - header - TAG)
end

local function initiation(buffer, tree)
    if buffer:len() < 10 + 1 + MAC then
        return nil
    end
    local noise = buffer(8, 2):uint()
    local token_at = 10 + noise
    if noise > MOST_NOISE or buffer:len() < token_at + 1 + MAC then
        return nil
    end
    local token = buffer(token_at, 1):uint()
    if (token ~= 0 and token ~= RETRY_TOKEN) or buffer:len() ~= token_at + 1 + token + MAC then
        return nil
    end
    check_version(buffer(1, 1), tree:add(f.version, buffer(1, 1)))
    tree:add(f.features, buffer(2, 2))
    tree:add(f.sender, buffer(4, 4))
    tree:add(f.noise_length, buffer(8, 2))
    if noise >= 96 then
        tree:add(f.ephemeral, buffer(10, 32))
        tree:add(f.static, buffer(42, 48))
        tree:add(f.payload, buffer(90, noise - 80))
    end
    tree:add(f.token_length, buffer(token_at, 1))
    if token > 0 then
        tree:add(f.retry_token, buffer(token_at + 1, token))
    end
    tree:add(f.mac, buffer(buffer:len() - MAC, MAC))
    return "Initiation from " .. index_text(buffer(4, 4)) .. (token > 0 and ", with a retry token" or "")
end

local function response(buffer, tree)
    local noise = buffer:len() - 10
    if noise < 0 or noise > MOST_NOISE then
        return nil
    end
    check_version(buffer(1, 1), tree:add(f.version, buffer(1, 1)))
    tree:add(f.receiver, buffer(2, 4))
    tree:add(f.sender, buffer(6, 4))
    if noise >= 48 then
        tree:add(f.ephemeral, buffer(10, 32))
        tree:add(f.payload, buffer(42, noise - 32))
    end
    return "Response to " .. index_text(buffer(2, 4)) .. " from " .. index_text(buffer(6, 4))
end

local function retry(buffer, tree)
    if buffer:len() ~= 5 + RETRY_TOKEN + MAC then
        return nil
    end
    tree:add(f.receiver, buffer(1, 4))
    tree:add(f.retry_token, buffer(5, RETRY_TOKEN))
    tree:add(f.mac, buffer(5 + RETRY_TOKEN, MAC))
    return "Retry to " .. index_text(buffer(1, 4))
end

local function reset(buffer, tree)
    if buffer:len() ~= 5 + RESET_TOKEN then
        return nil
    end
    tree:add(f.receiver, buffer(1, 4))
    tree:add(f.reset_token, buffer(5, RESET_TOKEN))
    return "Reset: " .. index_text(buffer(1, 4)) .. " is not known"
end

local PARSERS = { [1] = initiation, [2] = response, [3] = retry, [4] = reset, [128] = data }

-- One datagram. Returns the line for the packet list.
local function datagram(buffer, root)
    local tree = root:add(anabranch, buffer())
    local kind = buffer(0, 1):uint()
    kind = kind >= 128 and 128 or kind
    tree:add(f.kind, buffer(0, 1), kind)
    local parse = PARSERS[kind]
    local text = parse and parse(buffer, tree)
    if not text then
        tree:add_proto_expert_info(malformed)
        return "Malformed"
    end
    tree:append_text(", " .. text)
    return text
end

-- On TCP each datagram is preceded by its length.
local function stream(buffer, packet, root)
    local at, lines = 0, {}
    while at < buffer:len() do
        local left = buffer:len() - at
        local wanted = left >= 2 and buffer(at, 2):uint() + 2 or nil
        if wanted == 2 or (wanted and wanted > MOST_FRAME + 2) then
            root:add(anabranch, buffer(at)):add_proto_expert_info(malformed)
            return "Malformed"
        end
        if not wanted or left < wanted then
            packet.desegment_offset = at
            packet.desegment_len = wanted and wanted - left or DESEGMENT_ONE_MORE_SEGMENT
            break
        end
        root:add(f.length, buffer(at, 2))
        lines[#lines + 1] = datagram(buffer(at + 2, wanted - 2):tvb(), root)
        at = at + wanted
    end
    return table.concat(lines, "; ")
end

-- 2 is the port type of TCP.
local TCP = 2

function anabranch.dissector(buffer, packet, root)
    if buffer:len() == 0 then
        return 0
    end
    packet.cols.protocol = "Anabranch"
    local text = packet.port_type == TCP and stream(buffer, packet, root) or datagram(buffer, root)
    packet.cols.info = text
    return buffer:len()
end

local registered
local function register()
    for _, name in ipairs({ "udp.port", "tcp.port" }) do
        local ports = DissectorTable.get(name)
        if registered then
            ports:remove(registered, anabranch)
        end
        ports:add(anabranch.prefs.port, anabranch)
    end
    registered = anabranch.prefs.port
end

anabranch.prefs_changed = register
register()
